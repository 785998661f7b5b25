package wasihttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/fields"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/lull"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/pipe"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp/runner"
)

// ErrBusy is returned by Instances.Take where too many requests wait already.
var ErrBusy = errors.New("too many requests wait for an instance")

// Reasons why a request fails, for Handler.Log.
var (
	ErrNoResponse = errors.New("the guest has returned without a response")
	ErrDeadline   = errors.New("the time of the request is over")
)

// Instances provides guests for requests.
type Instances interface {
	// Take waits for a guest until ctx ends, or the time, unless that is zero. ErrBusy where too many
	// wait already.
	Take(ctx context.Context, end time.Time) (Guest, error)
}

// Guest is an instance of a component, for one request.
type Guest interface {
	// Context is what the guest's functions are called with. It has a canonical.Instance.
	Context() context.Context
	// Async says whether it answers requests as WASI 0.3 has it.
	Async() bool
	// Handle calls the export wasi:http/incoming-handler#handle with a request and a
	// response-outparam, or wasi:http/handler#handle of WASI 0.3 with a request, and returns when
	// the guest has.
	Handle(ctx context.Context, handles ...uint64) error
	// Stop ends the guest at its next call of a host function, or in the one that it waits in. It
	// may be called from any goroutine, and after Release.
	Stop(reason error)
	// Release gives the guest back. err is what Handle has returned.
	Release(err error)
}

// Limits bound one request; 0 is no limit.
type Limits struct {
	Time time.Duration // from the arrival of its head to the end of the response and of the guest
	Body int64         // of the request, in bytes
}

// Handler answers each request by a guest.
type Handler struct {
	Instances Instances
	Limits    Limits
	// Log is told why a request has failed. It may be nil.
	Log func(request *http.Request, err error)

	guests sync.WaitGroup
	pauses lull.Timer
}

// writeGrace is how long the last of a response may take beyond the time of the request.
const writeGrace = time.Second

// Wait returns when every guest has. No request may be in progress.
func (h *Handler) Wait() { h.guests.Wait() }

func (h *Handler) log(r *http.Request, err error) {
	if h.Log != nil {
		h.Log(r, err)
	}
}

// refuse answers a request without a guest's response.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	h.log(r, err)
	http.Error(w, http.StatusText(status), status)
}

// ServeHTTP answers one request. When it returns, the guest may still run: what it does after its
// response is its own business, until the time of the request is over.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !utf8.ValidString(r.RequestURI) || !utf8.ValidString(r.Host) {
		h.refuse(w, r, http.StatusBadRequest, errors.New("the request's target is not UTF-8"))
		return
	}
	if h.Limits.Body > 0 && r.ContentLength > h.Limits.Body {
		h.refuse(w, r, http.StatusRequestEntityTooLarge, sized(RequestBodySize, uint64(r.ContentLength)))
		return
	}
	size := fields.Size(r.Header, r.Trailer)
	if size > fields.Max {
		h.refuse(w, r, http.StatusRequestHeaderFieldsTooLarge, fields.ErrFull)
		return
	}
	to := &writer{ResponseWriter: w, control: http.NewResponseController(w)}
	var end time.Time
	if h.Limits.Time > 0 {
		end = time.Now().Add(h.Limits.Time)
		_ = to.control.SetWriteDeadline(end.Add(writeGrace)) // a writer without deadlines has none
	}
	guest, err := h.Instances.Take(r.Context(), end)
	if err != nil {
		h.refuse(w, r, http.StatusServiceUnavailable, err)
		return
	}
	if r.Trailer == nil && r.ContentLength != 0 {
		r.Trailer = http.Header{} // for those that are not announced
	}
	trailers := r.Trailer
	body := newIncoming(r.Body, func() http.Header { return trailers }, requestCode)
	if r.ContentLength != 0 {
		body.held = pipe.Size             // for what of it has arrived, and then for its trailers
		_ = to.control.EnableFullDuplex() // HTTP/2 has it anyway
	} else {
		body.reader = http.NoBody
	}
	complete := h.answer(end, to, r, h.start(guest, arrived(r, body, size), end))
	to.settle(body)
	body.reader, body.trailers, body.over = nil, nil, nil // the guest may keep the body
	if !complete {
		panic(http.ErrAbortHandler) // the client is to see it
	}
}

// start runs the guest, until the time that is its end, unless that is zero.
func (h *Handler) start(guest Guest, request *incomingRequest, end time.Time) *exchange {
	e := newExchange(&h.pauses)
	request.body.limit, request.body.over = h.Limits.Body, func(err error) { e.answer(nil, err) }
	stop := func() bool { return true }
	if !end.IsZero() {
		stop = time.AfterFunc(time.Until(end), func() {
			e.answer(nil, ErrDeadline)
			guest.Stop(ErrDeadline)
		}).Stop
	}
	h.guests.Add(1)
	runner.Run(func() {
		defer h.guests.Done()
		defer stop()
		err := run(guest, request, e)
		e.finish(err)
		<-e.taken // the response first: this thread is awake
		guest.Release(err)
	})
	return e
}

// run gives the guest its request, and waits for its end.
func run(guest Guest, request *incomingRequest, e *exchange) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *canonical.Trap:
			err = r // an instance that is kept has too many handles, or what it left is not as it must be
		default:
			panic(r)
		}
	}()
	ctx := guest.Context()
	i := canonical.From(ctx)
	if guest.Async() {
		return runAsync(guest, i, request, e)
	}
	return guest.Handle(ctx, uint64(i.Add(request, 0)), uint64(i.Add(&responseOutparam{e}, 0)))
}

// answer waits for the guest's response and sends it, until the time that is its end, unless that
// is zero. It reports whether the response is complete.
func (h *Handler) answer(end time.Time, w *writer, r *http.Request, e *exchange) bool {
	<-e.answered
	close(e.taken)
	if e.response == nil {
		h.fail(w, r, e.err)
		return true
	}
	if e.response.status < http.StatusOK { // net/http would take it for one of several heads
		e.response.Drop()
		h.fail(w, r, fmt.Errorf("the guest has answered with status %d", e.response.status))
		return true
	}
	w.head(e.response)
	if e.response.body == nil {
		return true
	}
	if err := w.copy(e.response.body, e.at, r.Context(), end); err != nil {
		e.response.body.pipe.CloseRead(pipe.ErrUnread)
		h.log(r, fmt.Errorf("send response: %w", err))
		_ = w.control.Flush() // the client is to see what there was
		return bodiless(r.Method, e.response.status) || w.sent == e.response.body.size
	}
	w.trailers(e.response.body.trailers)
	return true
}

// fail answers in the place of a guest that has not.
func (h *Handler) fail(w *writer, r *http.Request, err error) {
	status := http.StatusInternalServerError
	var refused ErrorCode
	switch {
	case err == nil:
		err = ErrNoResponse
	case errors.Is(err, ErrDeadline):
		status = http.StatusGatewayTimeout
	case errors.As(err, &refused) && refused.Case == RequestBodySize && h.Limits.Body > 0 && refused.Number == uint64(h.Limits.Body):
		status = http.StatusRequestEntityTooLarge
	}
	h.refuse(w, r, status, err)
}

// requestCode is the error-code of a body of a request that has not arrived as a whole.
func requestCode(err error) error {
	if isEOF(err) {
		return code(ConnectionTerminated)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return code(ConnectionReadTimeout)
	}
	return code(ProtocolError)
}

// What settle still reads of a body that no guest wants, so that the connection can be used again.
const (
	leftovers     = 64 << 10
	leftoversTime = 100 * time.Millisecond
)

// settle ends what reads the request's body, before net/http reads the next request. Where the body
// has not come to its end, the connection cannot be used again: what follows would be taken for a
// request.
func (w *writer) settle(body *incoming) {
	body.start.Do(func() { body.finish(code(ConnectionTerminated)) })
	body.pipe.CloseRead(pipe.ErrUnread)
	if body.reader == http.NoBody || body.begun.Load() && body.finished.IsSet() && body.err == nil {
		return
	}
	select {
	case <-body.done: // what has arrived is taken: closing would reset the connection
		_ = w.control.SetReadDeadline(time.Now().Add(leftoversTime))
		if _, err := io.CopyN(io.Discard, body.reader, leftovers); err == io.EOF {
			return
		}
	default:
	}
	w.closeAfterwards()
	_ = w.control.SetReadDeadline(time.Unix(1, 0)) // what reads, net/http's own end of the request too, stops
	<-body.done
}
