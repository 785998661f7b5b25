package serve

import (
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// maxLogged bounds the path in a line of the access log, in bytes.
const maxLogged = 1024

// accessLog writes a line for each request: METHOD path status bytes ms.
type accessLog struct {
	mu sync.Mutex
	to io.Writer
}

// meter counts what a response has.
type meter struct {
	http.ResponseWriter
	began  time.Time
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

func (l *accessLog) write(r *http.Request, m *meter) {
	path := r.URL.EscapedPath()
	if len(path) > maxLogged {
		path = path[:maxLogged] + "…"
	}
	line := append([]byte(r.Method), ' ') // net/http lets only tokens be methods
	line = append(line, path...)
	line = append(line, ' ')
	line = strconv.AppendInt(line, int64(m.status), 10)
	line = append(line, ' ')
	line = strconv.AppendInt(line, m.bytes, 10)
	line = append(line, ' ')
	line = strconv.AppendFloat(line, float64(time.Since(m.began).Microseconds())/1000, 'f', 1, 64)
	line = append(line, '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.to.Write(line) // nobody could be told
}
