package wasihttp

import (
	"net/http"
	"strings"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/pipe"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/target"
)

// incomingRequest is the resource of that name.
type incomingRequest struct {
	head   head        // without headers until they are asked for
	header http.Header // of which they are made
	size   int         // what they count
	body   *incoming   // nil: it was consumed
}

// arrived is the request of which net/http has this, with a body and headers that count so much. It
// keeps nothing else of it: the guest may keep the request.
func arrived(r *http.Request, body *incoming, size int) *incomingRequest {
	target, scheme := r.RequestURI, schemes[0]
	if !strings.HasPrefix(target, "/") { // a whole URI, or the authority of CONNECT
		target = r.URL.RequestURI()
	}
	if r.TLS != nil {
		scheme = schemes[1]
	}
	in := &incomingRequest{header: r.Header, size: size, body: body, head: head{method: r.Method,
		path: optional{r.Method != http.MethodConnect, target}, scheme: optional{true, scheme}, authority: optional{r.Host != "", r.Host}}}
	if len(r.Trailer) > 0 {
		in.head.headers = fields.OfHeaders(r.Header, r.Trailer)
	}
	return in
}

// Held implements canonical.Sized.
func (r *incomingRequest) Held() int {
	return r.head.texts() + r.size + r.body.Held()
}

func (r *incomingRequest) Drop() {
	if r.body != nil {
		r.body.Drop()
	}
}

// arrivedHead is the head of a request that has arrived.
func arrivedHead(c *canonical.Call, handle uint64) *head {
	return &canonical.Get[*incomingRequest](c, handle).head
}

func requestHeaders(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(canonical.Get[*incomingRequest](c, p[0]).fields(), 0))
	return nil
}

// fields are the headers.
func (r *incomingRequest) fields() *fields.Fields {
	if r.head.headers == nil {
		r.head.headers = fields.Of(r.header)
	}
	r.header = nil
	return r.head.headers
}

func requestConsume(c *canonical.Call, p []uint64, out uint32) error {
	return consume(c, p[0], out, &canonical.Get[*incomingRequest](c, p[0]).body)
}

// consume gives the guest the body of the request or the response of a handle.
func consume(c *canonical.Call, of uint64, out uint32, from **incoming) error {
	body := *from
	if body == nil {
		return errOnce
	}
	*from = nil
	c.Weigh(of)
	c.Put32(out, c.Add(&incomingBody{incoming: body}, 0))
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
	return h.texts() + h.headers.Held()
}

// texts is what they hold.
func (h *head) texts() int {
	return len(h.method) + len(h.path.text) + len(h.scheme.text) + len(h.authority.text)
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
	*to, body.handle = body, uint32(of)
	c.Put32(out, c.Add(&outgoingBody{of: body}, 0))
	return nil
}

// headFor is headOf or arrivedHead.
type headFor func(c *canonical.Call, handle uint64) *head

func (of headFor) method(c *canonical.Call, p []uint64, out uint32) error {
	putVariant(c, out, methods, of(c, p[0]).method)
	return nil
}

func setMethod(c *canonical.Call, p []uint64, _ uint32) error {
	r := headOf(c, p[0])
	method := readVariant(c, p[1:4], methods)
	answerPlain(c, p, target.Method(method), func() { r.method = method })
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
func (of headFor) getText(part func(*head) *optional) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, out uint32) error {
		o := part(of(c, p[0]))
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

func (of headFor) scheme(c *canonical.Call, p []uint64, out uint32) error {
	o := of(c, p[0]).scheme
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
	answerPlain(c, p, !to.some || target.Scheme(to.text), func() { r.scheme = to })
	return nil
}

func headHeaders(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(headOf(c, p[0]).headers, 0))
	return nil
}
