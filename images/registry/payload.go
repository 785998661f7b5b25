package registry

import (
	"io"
	"net/http"
	"time"
)

// payload is the body of a request, which may be sent several times.
type payload struct {
	mediaType string
	size      int64
	span      string // Content-Range, "" for all of it
	open      func() (io.ReadCloser, error)
}

// attach makes the payload the body of a request; a nil payload leaves it without one.
func (p *payload) attach(req *http.Request) error {
	if p == nil {
		return nil
	}
	req.Header.Set("Content-Type", p.mediaType)
	if p.span != "" {
		req.Header.Set("Content-Range", p.span)
	}
	req.ContentLength = p.size
	if p.size == 0 {
		req.Body = http.NoBody
		return nil
	}
	var err error
	req.Body, err = p.open()
	return err
}

// watched returns the payload with a call of stalled once no byte is taken for so long.
func (p *payload) watched(stalled func(), after time.Duration) *payload {
	out := *p
	out.open = func() (io.ReadCloser, error) {
		inner, err := p.open()
		if err != nil {
			return nil, err
		}
		w := &watchedPayload{ReadCloser: inner, after: after, timer: time.AfterFunc(after, stalled)}
		w.timer.Stop() // until the server is connected
		return w, nil
	}
	return &out
}

// watchedPayload counts the time in which the server takes nothing. The time to its answer is
// counted by the transport.
type watchedPayload struct {
	io.ReadCloser
	after time.Duration
	timer *time.Timer
}

func (w *watchedPayload) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err == nil {
		w.timer.Reset(w.after)
	} else {
		w.timer.Stop()
	}
	return n, err
}

func (w *watchedPayload) Close() error {
	w.timer.Stop()
	return w.ReadCloser.Close()
}
