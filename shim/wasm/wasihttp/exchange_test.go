package wasihttp

import (
	"context"
	"errors"
	"net/http/httptest"
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
		e, r := newExchange(), &outgoingResponse{body: &outgoing{pipe: pipe.New()}}
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

// released is a guest that tells when it has returned and when it was released.
type released struct {
	*keeper
	kept     bool
	returned time.Time
	at       chan time.Time
}

func (r *released) Take(context.Context, time.Time) (Guest, error) { return r, nil }
func (r *released) Kept() bool                                     { return r.kept }
func (r *released) Release(error)                                  { r.at <- time.Now() }

// taker is a client that takes the body of a response when it is let.
type taker struct {
	*httptest.ResponseRecorder
	take func()
}

func (w *taker) Write(body []byte) (int, error) {
	w.take()
	return w.ResponseRecorder.Write(body)
}

// TestGuestIsReleasedAfterItsResponse, or where the client is slow to take that, after a lull. One
// that is kept waits for no client.
func TestGuestIsReleasedAfterItsResponse(t *testing.T) {
	for name, c := range map[string]struct{ kept, slow bool }{"fast": {}, "slow": {slow: true}, "kept": {true, true}} {
		g := &released{kept: c.kept, at: make(chan time.Time, 1)}
		g.keeper = &keeper{newGuest(t), false, func(guest *guest, handles []uint64) {
			guest.say(guest.respond(handles[1], 200), "hello")
			g.returned = time.Now()
		}}
		var at, sent time.Time
		w := &taker{httptest.NewRecorder(), func() {
			if c.slow {
				select {
				case at = <-g.at:
				case <-time.After(patience):
					t.Errorf("%s: the guest waits for its client", name)
				}
			}
			sent = time.Now()
		}}
		h := &Handler{Instances: g}
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		h.Wait()
		if !c.slow {
			at = <-g.at
		}
		if waited := at.Sub(g.returned); !c.kept && at.Before(sent) && waited < lull {
			t.Errorf("%s: it was released %v after it had returned, and before its response", name, waited)
		}
		if w.Body.String() != "hello" {
			t.Errorf("%s: got %q", name, w.Body)
		}
	}
}
