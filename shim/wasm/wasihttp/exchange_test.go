package wasihttp

import (
	"errors"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/lull"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/pipe"
)

// TestWhenAResponseIsSent: at once without a body and for an error, with a body when the guest
// returns, when much of it is there, before the response or after it, and when it makes a pause.
func TestWhenAResponseIsSent(t *testing.T) {
	for name, act := range map[string]func(e *exchange, r *outgoingResponse){
		"no body": func(e *exchange, r *outgoingResponse) { r.body = nil; e.answer(r, nil) },
		"error":   func(e *exchange, _ *outgoingResponse) { e.answer(nil, errors.New("it has failed")) },
		"return":  func(e *exchange, r *outgoingResponse) { e.answer(r, nil); e.finish(nil) },
		"trap":    func(e *exchange, _ *outgoingResponse) { e.finish(errors.New("trap")) },
		"large":   func(e *exchange, r *outgoingResponse) { e.answer(r, nil); fill(t, r) },
		"written": func(e *exchange, r *outgoingResponse) { fill(t, r); e.answer(r, nil) },
		"pause":   func(e *exchange, r *outgoingResponse) { e.answer(r, nil) },
	} {
		e, r := newExchange(new(lull.Timer)), &outgoingResponse{body: &outgoing{pipe: pipe.New()}}
		act(e, r)
		select {
		case <-e.answered:
		case <-time.After(time.Minute):
			t.Errorf("%s: it is not sent", name)
		}
		e.finish(nil)
	}
}

func fill(t *testing.T, r *outgoingResponse) {
	t.Helper()
	if n, err := r.body.pipe.TryWrite(make([]byte, pipe.Size)); n != pipe.Size || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
}
