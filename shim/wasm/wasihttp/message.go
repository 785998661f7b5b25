package wasihttp

import (
	"net/http"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/target"
)

// request is the resource of that name of WASI 0.3: one that a guest has made, or one that has
// arrived.
type request struct {
	head
	options *requestOptions // nil for none
	body    *contents
}

// Held implements canonical.Sized.
func (r *request) Held() int { return r.head.Held() + r.body.held }

func (r *request) Drop() { r.body.drop() }

func newRequest(c *canonical.Call, p []uint64, out uint32) error {
	r := &request{head: head{method: methods[0], headers: canonical.Take[*fields.Fields](c, p[0]).Freeze()}}
	var sent uint32
	r.body, sent = contentsOf(c, p[1], p[2], p[3])
	if canonical.Discriminant(p[4], 2) == 1 {
		r.options = canonical.Take[*requestOptions](c, p[5])
		r.options.frozen = true
	}
	c.Put32(out, c.Add(r, 0))
	c.Put32(out+4, sent)
	return nil
}

// setPath is that of WASI 0.3: an empty path is "/".
func setPath(c *canonical.Call, p []uint64, out uint32) error {
	r := canonical.Get[*request](c, p[0])
	err := setText(headPath, target.Path3)(c, p, out)
	if r.path.some && r.path.text == "" {
		r.path.text = "/"
	}
	return err
}

func requestGetOptions(c *canonical.Call, p []uint64, out uint32) error {
	r := canonical.Get[*request](c, p[0])
	c.PutBool(out, r.options != nil)
	if r.options != nil {
		c.Put32(out+4, c.Add(r.options, 0))
	}
	return nil
}

func consumeRequest(c *canonical.Call, p []uint64, out uint32) error {
	canonical.Take[*request](c, p[0]).body.consume(c, p[1], out)
	return nil
}

// response is the resource of that name of WASI 0.3.
type response struct {
	status  int
	headers *fields.Fields
	body    *contents
}

// Held implements canonical.Sized.
func (r *response) Held() int { return r.headers.Held() }

func (r *response) Drop() { r.body.drop() }

func newResponse(c *canonical.Call, p []uint64, out uint32) error {
	r := &response{status: http.StatusOK, headers: canonical.Take[*fields.Fields](c, p[0]).Freeze()}
	var sent uint32
	r.body, sent = contentsOf(c, p[1], p[2], p[3])
	c.Put32(out, c.Add(r, 0))
	c.Put32(out+4, sent)
	return nil
}

func statusCode(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(canonical.Get[*response](c, p[0]).status)
	return nil
}

func setStatusCode(c *canonical.Call, p []uint64, _ uint32) error {
	r, status := canonical.Get[*response](c, p[0]), int(uint16(p[1]))
	answerPlain(c, p, status >= 100 && status <= 599, func() { r.status = status })
	return nil
}

func getHeaders(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(canonical.Get[*response](c, p[0]).headers, 0))
	return nil
}

func consumeResponse(c *canonical.Call, p []uint64, out uint32) error {
	canonical.Take[*response](c, p[0]).body.consume(c, p[1], out)
	return nil
}
