package serve

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxLogged bounds the path in a line of the access log, in bytes.
const maxLogged = 1024

// accessLog writes a line for each request: METHOD path status bytes ms. With HTTP/1 that is when
// its response was sent: net/http holds the end of it back until the handler has returned.
type accessLog struct {
	mu  sync.Mutex
	to  io.Writer
	due sync.WaitGroup // lines
}

type connKey struct{}

// withConn lets a request find its connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// await writes the line of a request when its response was sent.
func (l *accessLog) await(r *http.Request, m *meter) {
	end := time.Now()
	c, ok := r.Context().Value(connKey{}).(*conn)
	if !ok || r.ProtoMajor > 1 {
		l.write(r, m, end)
		return
	}
	l.due.Add(1)
	c.after = func() {
		defer l.due.Done()
		if sent := c.sent.Load() - m.before; c.broken.Load() && sent == 0 {
			m.status, m.bytes = 0, 0
		} else if c.broken.Load() {
			m.bytes = min(m.bytes, sent)
		}
		if last := c.born.Add(time.Duration(c.last.Load())); last.After(end) {
			end = last
		}
		l.write(r, m, end)
	}
}

// meter counts what a response has.
type meter struct {
	http.ResponseWriter
	began  time.Time
	before int64 // what the connection had sent when the request came
	status int
	bytes  int64
}

// Unwrap is for http.ResponseController.
func (m *meter) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (m *meter) WriteHeader(status int) {
	if m.status == 0 && status >= 200 {
		m.status = status
	}
	m.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (m *meter) Write(b []byte) (int, error) {
	if m.status == 0 {
		m.status = http.StatusOK
	}
	n, err := m.ResponseWriter.Write(b)
	m.bytes += int64(n)
	return n, err
}

func (l *accessLog) write(r *http.Request, m *meter, end time.Time) {
	path := r.URL.EscapedPath()
	if len(path) > maxLogged {
		path = path[:maxLogged] + "…"
	}
	took := float64(end.Sub(m.began).Microseconds()) / 1000
	line := fmt.Appendf(nil, "%s %s %d %d %.1f\n", r.Method, path, m.status, m.bytes, took) // net/http lets only tokens be methods
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.to.Write(line) // nobody could be told
}
