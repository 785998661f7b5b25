package wasihttp

import (
	"net/http"
	"strings"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
)

// incomingRequest is the resource of that name.
type incomingRequest struct {
	http    *http.Request
	body    *incoming
	headers *fields // once they were asked for
	taken   bool    // the body was consumed
}

func (r *incomingRequest) Drop() {
	if !r.taken {
		r.body.abandon()
	}
}

func requestMethod(c *canonical.Call, p []uint64, out uint32) error {
	putVariant(c, out, methods, canonical.Get[*incomingRequest](c, p[0]).http.Method)
	return nil
}

func requestPath(c *canonical.Call, p []uint64, out uint32) error {
	r := canonical.Get[*incomingRequest](c, p[0]).http
	target := r.RequestURI
	if !strings.HasPrefix(target, "/") { // a whole URI, or the authority of CONNECT
		target = r.URL.RequestURI()
	}
	putOptionalText(c, out, target, r.Method != http.MethodConnect)
	return nil
}

func requestScheme(c *canonical.Call, p []uint64, out uint32) error {
	r := canonical.Get[*incomingRequest](c, p[0])
	scheme := schemes[0]
	if r.http.TLS != nil {
		scheme = schemes[1]
	}
	c.Put8(out, 1)
	putVariant(c, out+4, schemes, scheme)
	return nil
}

func requestAuthority(c *canonical.Call, p []uint64, out uint32) error {
	host := canonical.Get[*incomingRequest](c, p[0]).http.Host
	putOptionalText(c, out, host, host != "")
	return nil
}

func requestHeaders(c *canonical.Call, p []uint64, _ uint32) error {
	r := canonical.Get[*incomingRequest](c, p[0])
	if r.headers == nil {
		r.headers = fieldsOf(r.http.Header)
	}
	p[0] = uint64(c.Add(r.headers, 0))
	return nil
}

func requestConsume(c *canonical.Call, p []uint64, out uint32) error {
	r := canonical.Get[*incomingRequest](c, p[0])
	if r.taken {
		return errOnce
	}
	r.taken = true
	c.Put32(out, c.Add(&incomingBody{of: r.body}, 0))
	return nil
}

// outgoingRequest is the resource of that name.
type outgoingRequest struct {
	method            string
	path              optional
	scheme, authority optional
	headers           *fields
	body              *outgoing // nil: the guest has not asked for it
}

// optional is an option<string>.
type optional struct {
	some bool
	text string
}

func (r *outgoingRequest) Drop() {
	if r.body != nil {
		r.body.pipe.closeRead(errUnread)
	}
}

func newOutgoingRequest(c *canonical.Call, p []uint64, _ uint32) error {
	headers := canonical.Take[*fields](c, p[0])
	p[0] = uint64(c.Add(&outgoingRequest{method: methods[0], headers: headers.freeze()}, 0))
	return nil
}

func outgoingRequestBody(c *canonical.Call, p []uint64, out uint32) error {
	r := canonical.Get[*outgoingRequest](c, p[0])
	if r.body != nil {
		return errOnce
	}
	return giveBody(c, out, &r.body, r.headers, RequestBodySize)
}

// giveBody makes the body of a request or a response, and gives the guest its handle.
func giveBody(c *canonical.Call, out uint32, to **outgoing, headers *fields, wrong Case) error {
	body, err := newOutgoing(headers, wrong)
	if err != nil {
		return err
	}
	*to = body
	c.Put32(out, c.Add(&outgoingBody{of: body}, 0))
	return nil
}

func outgoingMethod(c *canonical.Call, p []uint64, out uint32) error {
	putVariant(c, out, methods, canonical.Get[*outgoingRequest](c, p[0]).method)
	return nil
}

func setMethod(c *canonical.Call, p []uint64, _ uint32) error {
	r := canonical.Get[*outgoingRequest](c, p[0])
	method := readVariant(c, p[1:4], methods)
	answerPlain(p, validMethod(method), func() { r.method = method })
	return nil
}

// answerPlain is the answer of a function that returns a result without payloads.
func answerPlain(p []uint64, ok bool, then func()) {
	if p[0] = 1; ok {
		p[0] = 0
		then()
	}
}

// getText is the function that returns an option<string> of a request.
func getText(of func(*outgoingRequest) *optional) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, out uint32) error {
		o := of(canonical.Get[*outgoingRequest](c, p[0]))
		putOptionalText(c, out, o.text, o.some)
		return nil
	}
}

// setText is the function that sets an option<string> of a request.
func setText(of func(*outgoingRequest) *optional, valid func(string) bool) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		o, to := of(canonical.Get[*outgoingRequest](c, p[0])), optional{}
		if to.some = canonical.Discriminant(p[1], 2) == 1; to.some {
			to.text = readText(c, p[2], p[3])
		}
		answerPlain(p, !to.some || valid(to.text), func() { *o = to })
		return nil
	}
}

func outgoingPath(r *outgoingRequest) *optional      { return &r.path }
func outgoingAuthority(r *outgoingRequest) *optional { return &r.authority }

func outgoingScheme(c *canonical.Call, p []uint64, out uint32) error {
	o := canonical.Get[*outgoingRequest](c, p[0]).scheme
	c.PutBool(out, o.some)
	if o.some {
		putVariant(c, out+4, schemes, o.text)
	}
	return nil
}

func setScheme(c *canonical.Call, p []uint64, _ uint32) error {
	r, to := canonical.Get[*outgoingRequest](c, p[0]), optional{}
	if to.some = canonical.Discriminant(p[1], 2) == 1; to.some {
		to.text = readVariant(c, p[2:5], schemes)
	}
	answerPlain(p, !to.some || validScheme(to.text), func() { r.scheme = to })
	return nil
}

func outgoingHeaders(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(canonical.Get[*outgoingRequest](c, p[0]).headers, 0))
	return nil
}
