package wasihttp

import (
	"net/http"
	"strings"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/pipe"
)

// incomingRequest is the resource of that name.
type incomingRequest struct {
	http    *http.Request
	body    *incoming
	headers *fields.Fields // once they were asked for
	taken   bool           // the body was consumed
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
	path := canonical.Get[*incomingRequest](c, p[0]).path()
	putOptionalText(c, out, path.text, path.some)
	return nil
}

// path is what the request is for.
func (r *incomingRequest) path() optional {
	target := r.http.RequestURI
	if !strings.HasPrefix(target, "/") { // a whole URI, or the authority of CONNECT
		target = r.http.URL.RequestURI()
	}
	return optional{r.http.Method != http.MethodConnect, target}
}

// scheme is that of the connection.
func (r *incomingRequest) scheme() string {
	if r.http.TLS != nil {
		return schemes[1]
	}
	return schemes[0]
}

func requestScheme(c *canonical.Call, p []uint64, out uint32) error {
	c.Put8(out, 1)
	putVariant(c, out+4, schemes, canonical.Get[*incomingRequest](c, p[0]).scheme())
	return nil
}

func requestAuthority(c *canonical.Call, p []uint64, out uint32) error {
	host := canonical.Get[*incomingRequest](c, p[0]).http.Host
	putOptionalText(c, out, host, host != "")
	return nil
}

func requestHeaders(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(canonical.Get[*incomingRequest](c, p[0]).fields(), 0))
	return nil
}

// fields are the headers.
func (r *incomingRequest) fields() *fields.Fields {
	if r.headers == nil {
		r.headers = fields.Of(r.http.Header)
	}
	return r.headers
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

// head is what a request says before its body.
type head struct {
	method                  string
	path, scheme, authority optional
	headers                 *fields.Fields
}

// Held implements canonical.Sized.
func (h *head) Held() int {
	return len(h.method) + len(h.path.text) + len(h.scheme.text) + len(h.authority.text) + h.headers.Held()
}

// first is the head.
func (h *head) first() *head { return h }

// headed is a resource that has a head.
type headed interface {
	canonical.Resource
	first() *head
}

// headOf is the head of the request of a handle.
//
//go:noinline
func headOf(c *canonical.Call, handle uint64) *head { return canonical.Get[headed](c, handle).first() }

// outgoingRequest is the resource of that name.
type outgoingRequest struct {
	head
	body *outgoing // nil: the guest has not asked for it
}

// optional is an option<string>.
type optional struct {
	some bool
	text string
}

// Held implements canonical.Sized.
func (r *outgoingRequest) Held() int { return r.head.Held() + r.body.Held() }

func (r *outgoingRequest) Drop() {
	if r.body != nil {
		r.body.pipe.CloseRead(pipe.ErrUnread)
	}
}

func newOutgoingRequest(c *canonical.Call, p []uint64, _ uint32) error {
	headers := canonical.Take[*fields.Fields](c, p[0])
	p[0] = uint64(c.Add(&outgoingRequest{head: head{method: methods[0], headers: headers.Freeze()}}, 0))
	return nil
}

func outgoingRequestBody(c *canonical.Call, p []uint64, out uint32) error {
	r := canonical.Get[*outgoingRequest](c, p[0])
	if r.body != nil {
		return errOnce
	}
	return giveBody(c, p[0], out, &r.body, r.headers, RequestBodySize)
}

// giveBody makes the body of the request or the response of a handle, and gives the guest that of
// the body.
func giveBody(c *canonical.Call, of uint64, out uint32, to **outgoing, headers *fields.Fields, wrong Case) error {
	body, err := newOutgoing(headers, wrong)
	if err != nil {
		return err
	}
	*to = body
	c.Weigh(of)
	c.Put32(out, c.Add(&outgoingBody{of: body}, 0))
	return nil
}

func headMethod(c *canonical.Call, p []uint64, out uint32) error {
	putVariant(c, out, methods, headOf(c, p[0]).method)
	return nil
}

func setMethod(c *canonical.Call, p []uint64, _ uint32) error {
	r := headOf(c, p[0])
	method := readVariant(c, p[1:4], methods)
	answerPlain(c, p, validMethod(method), func() { r.method = method })
	return nil
}

// answerPlain is the answer of a function that changes what the handle in p[0] stands for, and
// returns a result without payloads.
func answerPlain(c *canonical.Call, p []uint64, ok bool, then func()) {
	handle := p[0]
	if p[0] = 1; ok {
		p[0] = 0
		then()
		c.Weigh(handle)
	}
}

// getText is the function that returns an option<string> of a request.
func getText(of func(*head) *optional) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, out uint32) error {
		o := of(headOf(c, p[0]))
		putOptionalText(c, out, o.text, o.some)
		return nil
	}
}

// setText is the function that sets an option<string> of a request.
func setText(of func(*head) *optional, valid func(string) bool) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		o, to := of(headOf(c, p[0])), optional{}
		if to.some = canonical.Discriminant(p[1], 2) == 1; to.some {
			to.text = readText(c, p[2], p[3])
		}
		answerPlain(c, p, !to.some || valid(to.text), func() { *o = to })
		return nil
	}
}

func headPath(h *head) *optional      { return &h.path }
func headAuthority(h *head) *optional { return &h.authority }

func headScheme(c *canonical.Call, p []uint64, out uint32) error {
	o := headOf(c, p[0]).scheme
	c.PutBool(out, o.some)
	if o.some {
		putVariant(c, out+4, schemes, o.text)
	}
	return nil
}

func setScheme(c *canonical.Call, p []uint64, _ uint32) error {
	r, to := headOf(c, p[0]), optional{}
	if to.some = canonical.Discriminant(p[1], 2) == 1; to.some {
		to.text = readVariant(c, p[2:5], schemes)
	}
	answerPlain(c, p, !to.some || validScheme(to.text), func() { r.scheme = to })
	return nil
}

func headHeaders(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(headOf(c, p[0]).headers, 0))
	return nil
}
