package wasihttp

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/lull"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/pipe"
)

// exchange is one request and what a guest answers to it.
type exchange struct {
	once     sync.Once
	response *outgoingResponse
	err      error
	at       time.Time // when the response came, if it has a body
	pauses   *lull.Timer

	tell     func()        // closes answered
	answered chan struct{} // closed when response or err is there, and it is time to send it
	taken    chan struct{} // closed when who sends it has been woken by that
}

func newExchange(p *lull.Timer) *exchange {
	e := &exchange{pauses: p, answered: make(chan struct{}), taken: make(chan struct{})}
	e.tell = sync.OnceFunc(func() { close(e.answered) })
	return e
}

// answer is the guest's answer, or an error in its place. The first one counts. Most guests return
// soon after it: who sends the response is woken once, when all of it is there, or at latest when
// its body makes a pause.
func (e *exchange) answer(response *outgoingResponse, err error) {
	e.once.Do(func() {
		e.response, e.err = response, err
		if response == nil || response.body == nil {
			e.tell()
			return
		}
		e.at = time.Now()
		response.body.pipe.WhenLarge(e.tell)
		e.pauses.Add(e.tell)
	})
	if response != nil && response != e.response {
		response.Drop() // it comes too late
	}
}

// finish is the guest's end. A body that it has left open ends complete if the guest has returned:
// it can have nothing more to say, and wasmtime ends it so.
func (e *exchange) finish(err error) {
	e.answer(nil, err)
	if r := e.response; r != nil && r.body != nil {
		end := io.EOF
		if err != nil {
			end = fmt.Errorf("%w: %w", errAborted, err)
		}
		r.body.pipe.CloseWrite(end)
	}
	e.tell()
}

// writer sends a guest's response.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
	sent    int64 // of the body
	chunked bool  // the head leaves room for trailers
}

// bodiless says whether a response has no body, whatever its content-length is.
func bodiless(method string, status int) bool {
	return method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
}

// head makes the head of the response, which is sent with the body or after a lull. Where trailers
// are there already, net/http is told of them, else it gives a body that is there a length.
func (w *writer) head(r *outgoingResponse) {
	header := w.Header()
	maps.Copy(header, r.headers.Header())
	if r.body != nil && r.body.pipe.Complete() {
		for name := range r.body.trailers {
			header[http.TrailerPrefix+name], w.chunked = nil, true
		}
	}
	if lengths := header["Content-Length"]; len(lengths) > 1 {
		header["Content-Length"] = lengths[:1]
	}
	if _, typed := header["Content-Type"]; !typed {
		header["Content-Type"] = nil // else net/http guesses one
	}
	w.WriteHeader(r.status)
	clear(header) // net/http sends what is left in it behind the body, if it is announced as a trailer
}

// goneGrace is how long a body may pause whose client sends nothing more: it has closed the
// connection, or only its half of it.
const goneGrace = time.Second

// copy sends the body until its end, which it returns: nil for a complete one. at is when the
// response came. client ends when the client sends nothing more, end is when the request's time is
// over, zero for never. Most bodies are there as a whole, and need neither a timer nor a channel.
func (w *writer) copy(body *outgoing, at time.Time, client context.Context, end time.Time) error {
	chunk := chunks.Get().(*[16 << 10]byte)
	defer chunks.Put(chunk)
	var pause *time.Timer
	unsent := true // the head
	var gone <-chan struct{}
	var left, over <-chan time.Time
	for {
		n, err := body.pipe.TryRead(chunk[:])
		switch {
		case n > 0:
			if _, err := w.Write(chunk[:n]); err != nil && err != http.ErrBodyNotAllowed {
				return err
			}
			w.sent += int64(n)
			if !unsent {
				unsent = true
				pause.Reset(lull.Time)
			}
			if left != nil {
				left = time.After(goneGrace)
			}
			continue
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if pause == nil {
			pause = time.NewTimer(lull.Time - time.Since(at))
			defer pause.Stop()
			gone = client.Done()
			if !end.IsZero() {
				over = time.After(time.Until(end))
			}
		}
		select {
		case <-body.pipe.Moved:
		case <-pause.C:
			unsent = false
			if err := w.control.Flush(); err != nil {
				return err
			}
		case <-gone:
			gone, left = nil, time.After(goneGrace)
		case <-left:
			return pipe.ErrUnread
		case <-over:
			return ErrDeadline
		}
	}
}

// trailers adds those of a complete body. Behind a head that has a length net/http sends none, and
// it gives a short body one whose head it has not sent yet.
func (w *writer) trailers(trailers http.Header) {
	if len(trailers) > 0 && !w.chunked {
		_ = w.control.Flush() // what writes the rest sees its error
	}
	for name, values := range trailers {
		w.Header()[http.TrailerPrefix+name] = values
	}
}

// closeAfterwards makes net/http close the connection behind the response. It has no function for
// that once the head was sent, except what it does for a body that is too large, which only its own
// writer does.
func (w *writer) closeAfterwards() {
	to := w.ResponseWriter
	for {
		around, wraps := to.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			break
		}
		to = around.Unwrap()
	}
	limited := http.MaxBytesReader(to, io.NopCloser(strings.NewReader("x")), 0)
	_, _ = io.Copy(io.Discard, limited)
}
