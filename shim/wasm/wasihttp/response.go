package wasihttp

import (
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/pipe"
)

// outgoingResponse is the resource of that name.
type outgoingResponse struct {
	status  int
	headers *fields.Fields
	body    *outgoing // nil: the guest has not asked for it
}

// Held implements canonical.Sized.
func (r *outgoingResponse) Held() int { return r.headers.Held() + r.body.Held() }

func (r *outgoingResponse) Drop() {
	if r.body != nil {
		r.body.pipe.CloseRead(pipe.ErrUnread)
	}
}

func newOutgoingResponse(c *canonical.Call, p []uint64, _ uint32) error {
	headers := canonical.Take[*fields.Fields](c, p[0])
	p[0] = uint64(c.Add(&outgoingResponse{status: 200, headers: headers.Freeze()}, 0))
	return nil
}

func responseStatus(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(canonical.Get[*outgoingResponse](c, p[0]).status)
	return nil
}

func setStatus(c *canonical.Call, p []uint64, _ uint32) error {
	r, status := canonical.Get[*outgoingResponse](c, p[0]), int(uint16(p[1]))
	answerPlain(c, p, status >= 100 && status <= 999, func() { r.status = status })
	return nil
}

func responseHeaders(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(canonical.Get[*outgoingResponse](c, p[0]).headers, 0))
	return nil
}

func responseBody(c *canonical.Call, p []uint64, out uint32) error {
	r := canonical.Get[*outgoingResponse](c, p[0])
	if r.body != nil {
		return errOnce
	}
	return giveBody(c, p[0], out, &r.body, r.headers, ResponseBodySize)
}

// responseOutparam is the resource of that name: where the answer to one request goes.
type responseOutparam struct{ to *exchange }

func (*responseOutparam) Drop() {}

func outparamSet(c *canonical.Call, p []uint64, _ uint32) error {
	out := canonical.Take[*responseOutparam](c, p[0])
	if canonical.Discriminant(p[1], 2) == 1 {
		out.to.answer(nil, readCode(c, p[2:9]))
		return nil
	}
	out.to.answer(canonical.Take[*outgoingResponse](c, p[2]), nil)
	return nil
}

// incomingResponse is the resource of that name.
type incomingResponse struct {
	status  int
	headers *fields.Fields
	body    *incoming // nil: it was consumed
}

// Held implements canonical.Sized.
func (r *incomingResponse) Held() int { return r.headers.Held() }

func (r *incomingResponse) Drop() {
	if r.body != nil {
		r.body.Drop()
	}
}

func incomingStatus(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(canonical.Get[*incomingResponse](c, p[0]).status)
	return nil
}

func incomingHeaders(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(canonical.Get[*incomingResponse](c, p[0]).headers, 0))
	return nil
}

func incomingConsume(c *canonical.Call, p []uint64, out uint32) error {
	r := canonical.Get[*incomingResponse](c, p[0])
	return consume(c, p[0], out, &r.body)
}
