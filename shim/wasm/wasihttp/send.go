package wasihttp

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/pipe"
)

// futureResponse is the resource future-incoming-response.
type futureResponse struct {
	arrived wasi.Event // response or err is there
	http    *http.Response
	headers *fields.Fields
	err     error
	taken   bool
	end     func() // gives the request up, and its place among maxRequests back
	body    *timedBody
}

// Drop gives up a request whose response the guest has not taken.
func (f *futureResponse) Drop() {
	if !f.taken {
		f.end()
	}
}

func (f *futureResponse) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{Event: &f.arrived}, true
}

// handle is the function of that name of wasi:http/outgoing-handler.
func handle(c *canonical.Call, p []uint64, out uint32) error {
	request, options := canonical.Take[*outgoingRequest](c, p[0]), requestOptions{}
	if canonical.Discriminant(p[1], 2) == 1 {
		options = *canonical.Take[*requestOptions](c, p[2])
	}
	cl, _ := c.Instance.Extension.(*Client)
	f, err := cl.send(c.Instance.Life(), &request.head, request.body, options)
	if err != nil {
		request.Drop()
		return err
	}
	c.Put32(out, c.Add(f, 0))
	return nil
}

// send starts a request, which is given up when the life of the instance ends.
func (cl *Client) send(life context.Context, from *head, body *outgoing, options requestOptions) (*futureResponse, error) {
	if cl == nil {
		return nil, code(RequestDenied)
	}
	request, err := from.build(body)
	if err != nil {
		return nil, err
	}
	select {
	case cl.slots <- struct{}{}:
	default:
		return nil, code(ConnectionLimitReached)
	}
	dials := &dialing{options: options}
	ctx, cancel := context.WithCancelCause(context.WithValue(life, dialingKey{}, dials))
	dials.request = ctx
	f := &futureResponse{}
	var forget func() bool
	f.end = sync.OnceFunc(func() {
		forget()
		cancel(context.Canceled)
		<-cl.slots
	})
	forget = context.AfterFunc(life, f.end)
	first := time.AfterFunc(time.Hour, func() { cancel(code(ConnectionReadTimeout)) })
	first.Stop()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { first.Reset(options.firstByte.or(defaultTimeout)) },
	})
	request = request.WithContext(ctx)
	if sent, ok := request.Body.(*sentBody); ok {
		context.AfterFunc(ctx, func() { _ = sent.Close() }) // net/http waits for what reads the body
	}
	go func() {
		defer f.arrived.Set()
		f.http, f.err = cl.transport.RoundTrip(request)
		if first.Stop(); f.err == nil {
			f.err = f.accept()
		}
		if f.err != nil {
			f.err = sendCode(ctx, f.err)
			f.end()
			return
		}
		between := options.betweenBytes.or(defaultTimeout)
		f.body = &timedBody{f.http.Body, ctx, between, time.AfterFunc(between, func() { cancel(code(ConnectionReadTimeout)) })}
		f.body.timer.Stop()
	}()
	return f, nil
}

// accept takes the head of the response that has arrived, or refuses it.
func (f *futureResponse) accept() error {
	r, refused := f.http, ProtocolError
	if r.StatusCode != http.StatusSwitchingProtocols {
		if fields.Size(r.Header, r.Trailer) <= fields.Max {
			f.headers = fields.OfHeaders(r.Header, r.Trailer)
			r.Header = nil
			return nil
		}
		refused = ResponseHeaderSectionSize
	}
	r.Body.Close()
	f.http = nil
	return code(refused)
}

// build makes what net/http sends.
func (h *head) build(body *outgoing) (*http.Request, error) {
	scheme := schemes[1] // without one, as wasmtime has it
	if h.scheme.some {
		scheme = h.scheme.text
	}
	switch {
	case scheme != schemes[0] && scheme != schemes[1]:
		return nil, code(ProtocolError)
	case !h.authority.some:
		return nil, code(RequestURIInvalid)
	}
	request := &http.Request{Method: h.method, URL: &url.URL{Scheme: scheme, Host: h.authority.text}, Host: h.authority.text,
		Header: h.headers.Header(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	if err := setTarget(request.URL, h.path.text); err != nil {
		return nil, code(RequestURIInvalid)
	}
	if _, named := request.Header["User-Agent"]; !named {
		request.Header["User-Agent"] = nil // else net/http names itself
	}
	if body != nil && body.size != 0 {
		trailers := http.Header{}
		announce(trailers, request.Header["Trailer"])
		request.Body, request.ContentLength, request.Trailer = &sentBody{body, trailers}, body.size, trailers
	}
	return request, nil
}

// sentBody is the body of a request for net/http, which reads the trailers behind the end of the
// body, and before that their names.
type sentBody struct {
	of       *outgoing
	trailers http.Header // the request's
}

func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.of.pipe.Read(p)
	if err == io.EOF {
		maps.Copy(b.trailers, b.of.trailers)
	}
	return n, err
}

// Close is called when the request was sent or given up.
func (b *sentBody) Close() error {
	b.of.pipe.CloseRead(pipe.ErrUnread)
	return nil
}

// setTarget makes u send this path with its query, byte for byte.
func setTarget(u *url.URL, target string) error {
	switch {
	case target == "" || target[0] == '?':
		target = "/" + target
	case strings.HasPrefix(target, "//"): // an Opaque of this form would be a host
		parsed, err := url.ParseRequestURI(target)
		if err != nil {
			return err
		}
		u.Path, u.RawPath, u.RawQuery, u.ForceQuery = parsed.Path, parsed.RawPath, parsed.RawQuery, parsed.ForceQuery
		return nil
	}
	u.Opaque = target
	return nil
}

// announce adds the names of trailers that a guest's header names.
func announce(trailers http.Header, header []string) {
	for _, line := range header {
		for name := range strings.SplitSeq(line, ",") {
			switch name = http.CanonicalHeaderKey(strings.TrimSpace(name)); {
			case !fields.ValidName(name), name == "Transfer-Encoding", name == "Trailer", name == "Content-Length":
			default:
				trailers[name] = nil
			}
		}
	}
}

// timedBody is the body of a response, each read of which has the time between-bytes-timeout.
type timedBody struct {
	io.ReadCloser
	ctx     context.Context
	between time.Duration
	timer   *time.Timer
}

func (b *timedBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.between)
	defer b.timer.Stop()
	return b.ReadCloser.Read(p)
}

func responseGet(c *canonical.Call, p []uint64, out uint32) error {
	f := canonical.Get[*futureResponse](c, p[0])
	if !answerFuture(c, out, f.arrived.IsSet(), &f.taken, &f.err) {
		return nil
	}
	r := &incomingResponse{status: f.http.StatusCode, headers: f.headers}
	r.body = f.incoming()
	c.Put32(out+futureResult, c.Add(r, 0))
	return nil
}

// incoming is the body of the response that has arrived, of which the future knows nothing more.
func (f *futureResponse) incoming() *incoming {
	response, body, end := f.http, f.body, f.end
	f.http, f.headers, f.body = nil, nil, nil
	in := newIncoming(body, func() http.Header { return response.Trailer }, func(err error) error { return receiveCode(body.ctx, err) })
	in.release = func() {
		end()
		body.Close()
	}
	return in
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// sendCode is the error-code of a request without a response.
func sendCode(ctx context.Context, err error) error {
	var own ErrorCode
	var timeout net.Error
	switch {
	case errors.As(err, &own), errors.As(context.Cause(ctx), &own):
		return own
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE), isEOF(err):
		return code(ConnectionTerminated)
	case errors.As(err, &timeout) && timeout.Timeout():
		return code(ConnectionReadTimeout)
	case strings.Contains(err.Error(), "response headers exceeded"):
		return code(ResponseHeaderSectionSize)
	default:
		return code(ProtocolError)
	}
}

// receiveCode is the error-code of a body of a response that has not arrived as a whole.
func receiveCode(ctx context.Context, err error) error {
	if isEOF(err) {
		return code(ResponseIncomplete)
	}
	return sendCode(ctx, err)
}
