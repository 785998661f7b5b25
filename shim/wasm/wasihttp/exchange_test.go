package wasihttp

import (
	"errors"
	"testing"
	"time"

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
		e, r := newExchange(new(pauses)), &outgoingResponse{body: &outgoing{pipe: pipe.New()}}
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

// TestPausesEnd has the timer of pauses run only while exchanges have answered, and keep none of
// them; one that answers afterwards starts it again.
func TestPausesEnd(t *testing.T) {
	p := &pauses{}
	for round := range 3 {
		e := newExchange(p)
		for range 10 {
			short := newExchange(p)
			short.answer(&outgoingResponse{body: &outgoing{pipe: pipe.New()}}, nil)
			short.finish(nil)
		}
		e.answer(&outgoingResponse{body: &outgoing{pipe: pipe.New()}}, nil)
		select {
		case <-e.answered:
			if waited := time.Since(e.at); waited < lull/2 {
				t.Errorf("round %d: it was told of after %s", round, waited)
			}
		case <-time.After(time.Minute):
			t.Fatalf("round %d: it was never told of", round)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(lull) {
			p.mu.Lock()
			rests := !p.runs && len(p.fresh) == 0 && len(p.old) == 0
			p.mu.Unlock()
			if rests {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("round %d: the timer goes on", round)
			}
		}
		e.finish(nil)
	}
}
