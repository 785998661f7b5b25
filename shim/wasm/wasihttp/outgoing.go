package wasihttp

import (
	"errors"
	"maps"
	"net/http"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/pipe"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// errAborted ends a body that the guest has not finished.
var errAborted = errors.New("the guest has not finished the body")

// outgoing is the body of a request or a response that a guest writes.
type outgoing struct {
	pipe     *pipe.Pipe
	size     int64 // that content-length announces, -1 for none
	written  int64
	wrong    Case        // what a body of another size is
	trailers http.Header // for who has read the end of the pipe
	failed   error       // why it has no end, of WASI 0.3
	handle   uint32      // of the request or response that it is counted with, until that is sent
	trailing int         // what the trailers count
}

// newOutgoing makes the body that goes with these headers.
func newOutgoing(headers *fields.Fields, wrong Case) (*outgoing, error) {
	size, err := headers.ContentLength()
	if err != nil {
		return nil, err
	}
	return &outgoing{pipe: pipe.New(), size: size, wrong: wrong, trailers: http.Header{}}, nil
}

// finish ends the body. The trailers are there before its end is.
func (o *outgoing) finish(trailers *fields.Fields) error {
	if o.size >= 0 && o.written != o.size {
		o.pipe.CloseWrite(errAborted)
		return sized(o.wrong, uint64(o.written))
	}
	o.pipe.Finish(func() {
		if trailers != nil {
			maps.Copy(o.trailers, trailers.Header())
		}
	})
	return nil
}

// Held is what it holds of the host's memory, none of no body.
func (o *outgoing) Held() int {
	if o == nil {
		return 0
	}
	return o.pipe.Held() + o.trailing
}

// outgoingBody is the resource of that name.
type outgoingBody struct {
	of     *outgoing
	stream bool // it was given out
}

func (b *outgoingBody) Drop() { b.of.pipe.CloseWrite(errAborted) }

// bodyWriter is the output-stream of an outgoing-body.
type bodyWriter struct {
	of     *outgoing
	closed bool // what was written is not what content-length announces
}

func (*bodyWriter) Drop() {}

// WaitsFor is room in the pipe.
func (s *bodyWriter) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{Event: &s.of.pipe.Writable}, !s.closed
}

// Check is that of wasip2.OutputStream.
func (s *bodyWriter) Check() (uint64, error) {
	room, err := s.of.pipe.Room()
	if s.closed || err != nil {
		return 0, wasip2.ErrClosed
	}
	return uint64(room), nil
}

// Write is that of wasip2.OutputStream.
func (s *bodyWriter) Write(i *wasip2.Instance, b []byte) error {
	if s.closed {
		return wasip2.ErrClosed
	}
	var long error
	if s.of.written += int64(len(b)); s.of.size >= 0 && s.of.written > s.of.size {
		long = sized(s.of.wrong, uint64(s.of.written))
		b = b[:max(int64(len(b))-(s.of.written-s.of.size), 0)]
		s.closed = true
	}
	for len(b) > 0 {
		n, err := s.of.pipe.TryWrite(b)
		if err != nil {
			return wasip2.ErrClosed
		}
		if b = b[n:]; n > 0 {
			i.ABI().Weigh(s.of.handle)
			continue
		}
		if err := i.Wait(wasi.Subscription{Event: &s.of.pipe.Writable}); err != nil {
			return err
		}
	}
	return long
}

// Flush is that of wasip2.OutputStream. The other side of the pipe is never idle.
func (s *bodyWriter) Flush(*wasip2.Instance, bool) error {
	_, err := s.Check()
	return err
}

func bodyWrite(c *canonical.Call, p []uint64, out uint32) error {
	b := canonical.Get[*outgoingBody](c, p[0])
	if b.stream {
		return errOnce
	}
	b.stream = true
	c.Put32(out, c.Add(wasip2.NewOutputStream(&bodyWriter{of: b.of}), uint32(p[0])))
	return nil
}

func outgoingFinish(c *canonical.Call, p []uint64, _ uint32) error {
	b := canonical.Take[*outgoingBody](c, p[0])
	var trailers *fields.Fields
	if canonical.Discriminant(p[1], 2) == 1 {
		trailers = canonical.Take[*fields.Fields](c, p[2])
		b.of.trailing = trailers.Held()
		c.Instance.Weigh(b.of.handle)
	}
	return b.of.finish(trailers)
}
