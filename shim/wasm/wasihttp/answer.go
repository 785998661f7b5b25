package wasihttp

import (
	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
)

// runAsync is run of a guest of WASI 0.3. What it has given away of the request's body is sent
// after its end too.
func runAsync(guest Guest, i *canonical.Instance, from *incomingRequest, e *exchange) error {
	method := from.head.method
	tasks := i.Tasks.(*async.Tasks)
	tasks.Returned = func(c *canonical.Call, flat []uint64) { e.taskReturned(c, flat, method) }
	from.fields()
	r := &request{head: from.head, body: arriving(tasks, from.body)}
	if err := guest.Handle(guest.Context(), uint64(i.Add(r, 0))); err != nil {
		return err
	}
	return tasks.Settle(i)
}

// taskReturned gets what a task has returned: result<response, error-code>.
func (e *exchange) taskReturned(c *canonical.Call, flat []uint64, method string) {
	if len(flat) != 8 {
		canonical.Trapf("handle returns %d flat values, not 8", len(flat))
	}
	if canonical.Discriminant(flat[0], 2) == 1 {
		e.answer(nil, readCode(c, flat[1:]))
		return
	}
	r := canonical.Take[*response](c, flat[1])
	body, err := r.body.send(r.headers, ResponseBodySize)
	if err != nil {
		r.Drop()
		e.answer(nil, err)
		return
	}
	if bodiless(method, r.status) {
		body.size = -1 // content-length is not that of the body, which is not sent
	}
	e.answer(&outgoingResponse{r.status, r.headers, body}, nil)
}
