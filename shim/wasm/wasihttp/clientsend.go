package wasihttp

import (
	"strings"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/pipe"
)

// sending is the operation of client.send: a request whose response has not come yet.
type sending struct {
	async.Going
	future *futureResponse
	body   *outgoing
	empty  bool // the request has no body
}

// clientSend is wasi:http/client.send.
func clientSend(c *canonical.Call, p []uint64, _ uint32) error {
	r := canonical.Take[*request](c, p[0])
	s := &sending{empty: r.body.stream == nil && len(r.headers.Get("trailer")) == 0}
	body, err := r.body.send(r.headers, RequestBodySize)
	if err != nil {
		r.Drop()
		return err
	}
	s.body = body
	options, given := requestOptions{}, body
	if r.options != nil {
		options = *r.options
	}
	if s.empty {
		given = nil
	}
	cl, _ := c.Instance.Extension.(*Client)
	if err = r.sendable(); err == nil {
		s.future, err = cl.send(c.Instance.Life(), &r.head, given, options)
	}
	if err != nil {
		s.fail(err)
		return err
	}
	return s
}

// sendable refuses what WASI 0.3 lets a request have, and no connection carries.
func (h *head) sendable() error {
	path := h.path.text
	relative := path != "" && path[0] != '/' && path[0] != '?' && !(path == "*" && h.method == "OPTIONS")
	if relative || strings.Contains(h.authority.text, "@") {
		return code(RequestURIInvalid)
	}
	return nil
}

// fail tells the guest that the request was not sent.
func (s *sending) fail(err error) {
	if s.body.failed == nil {
		s.body.failed = err
	}
	s.body.pipe.CloseRead(pipe.ErrUnread)
}

// WaitsFor implements async.Work.
func (s *sending) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{Event: &s.future.arrived}, true
}

// Step implements canonical.Operation.
func (s *sending) Step(c *canonical.Call, out uint32) (bool, error) {
	f := s.future
	if !f.arrived.IsSet() {
		return false, nil
	}
	if f.taken = true; f.err != nil {
		s.fail(f.err)
		return true, f.err
	}
	if s.empty || s.body.size == 0 { // none is sent
		s.body.pipe.Accept()
	}
	r := &response{status: f.http.StatusCode, headers: f.headers}
	r.body = arriving(async.Of(c), f.incoming())
	c.Put32(out, c.Add(r, 0))
	return true, nil
}

// Cancel implements canonical.Operation.
func (s *sending) Cancel() {
	s.future.Drop()
	s.fail(code(ConnectionTerminated))
}
