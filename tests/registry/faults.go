// Package registry has what image pulls are tested against: Debian's own
// docker-registry with every kind of authorization, a token server, and a proxy
// that stands before any registry and does what bad links and bad servers do.
package registry

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Fault is something that goes wrong with requests for a path.
type Fault struct {
	Path   string // what the path holds: "/blobs/", a digest; "" is every path
	Method string // "" is every method
	Skip   int    // so many requests pass before
	Times  int    // and so many have the fault; 0 is all the rest
	Do     Action

	seen int
}

// Action does something to an exchange. It answers by itself, or lets next
// answer, perhaps to another ResponseWriter.
type Action func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc)

// Proxy stands before a registry.
type Proxy struct {
	next http.Handler

	mu       sync.Mutex
	faults   []*Fault
	requests []string
}

// NewProxy returns a Proxy before the registry at a URL.
func NewProxy(backend string) (*Proxy, error) {
	u, err := url.Parse(backend)
	if err != nil {
		return nil, err
	}
	return &Proxy{next: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Host = r.In.Host // its answers name the proxy
		},
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}}, nil
}

// Set replaces the faults and forgets the requests.
func (p *Proxy) Set(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults, p.requests = nil, nil
	for _, f := range faults {
		p.faults = append(p.faults, &f)
	}
}

// Requests are "METHOD PATH RANGE" of the requests since Set, in their order.
func (p *Proxy) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.requests...)
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if do := p.fault(r); do != nil {
		do(w, r, p.next.ServeHTTP)
		return
	}
	p.next.ServeHTTP(w, r)
}

func (p *Proxy) fault(r *http.Request) Action {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
	for _, f := range p.faults {
		if f.Method != "" && f.Method != r.Method || !strings.Contains(r.URL.Path, f.Path) {
			continue
		}
		f.seen++
		if f.seen > f.Skip && (f.Times == 0 || f.seen <= f.Skip+f.Times) {
			return f.Do
		}
	}
	return nil
}

// Status answers with a status, and with Retry-After unless that is "".
func Status(code int, retryAfter string) Action {
	return func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(code)
	}
}

// Cut closes the connection behind n bytes of the body.
func Cut(n int64) Action {
	return through(func(w *writer, p []byte) (int, error) {
		if w.at+int64(len(p)) > n {
			w.ResponseWriter.Write(p[:n-w.at]) // the connection is closed next, whatever this returns
			w.flush()
			panic(http.ErrAbortHandler)
		}
		return w.pass(p)
	}, nil)
}

// Stall sends n bytes of the body and then nothing, until the client has closed the connection.
func Stall(n int64) Action {
	return through(func(w *writer, p []byte) (int, error) {
		if w.at+int64(len(p)) > n {
			w.ResponseWriter.Write(p[:n-w.at]) // an error changes nothing
			w.flush()
			<-w.gone
			panic(http.ErrAbortHandler)
		}
		return w.pass(p)
	}, nil)
}

// Slow makes a pause before every chunk of the body.
func Slow(chunk int, pause time.Duration) Action {
	return through(func(w *writer, p []byte) (n int, err error) {
		for len(p) > 0 && err == nil {
			time.Sleep(pause)
			var m int
			m, err = w.pass(p[:min(chunk, len(p))])
			w.flush()
			n, p = n+m, p[m:]
		}
		return n, err
	}, nil)
}

// Corrupt flips a bit of byte n of the body.
func Corrupt(n int64) Action {
	return through(func(w *writer, p []byte) (int, error) {
		if w.at <= n && n < w.at+int64(len(p)) {
			p[n-w.at] ^= 1
		}
		return w.pass(p)
	}, nil)
}

// Length announces so many bytes more, or less, than there are, and sends as
// many as it announces, if there are.
func Length(more int64) Action {
	return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		var left int64
		through(func(w *writer, p []byte) (int, error) {
			take := min(int64(len(p)), left)
			if _, err := w.pass(p[:take]); err != nil {
				return 0, err
			}
			left -= take
			return len(p), nil
		}, func(h http.Header) {
			if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil {
				left = n + more
				h.Set("Content-Length", strconv.FormatInt(left, 10))
			}
		})(w, r, next)
	}
}

// Endless sends the body and continues without an end, and without saying so.
func Endless() Action {
	return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		through(func(w *writer, p []byte) (int, error) { return w.pass(p) }, func(h http.Header) { h.Del("Content-Length") })(w, r, next)
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				return
			}
		}
	}
}

// NoRanges answers with the whole.
func NoRanges() Action {
	return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		r.Header.Del("Range")
		next(w, r)
	}
}

// Redirect sends the client to the same path at another server.
func Redirect(to string) Action {
	return func(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
		w.Header().Set("Location", to+r.URL.Path+"?signature=signed")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

// writer changes a body on its way.
type writer struct {
	http.ResponseWriter
	at     int64
	gone   <-chan struct{}
	write  func(*writer, []byte) (int, error)
	header func(http.Header)
	begun  bool
}

func through(write func(*writer, []byte) (int, error), header func(http.Header)) Action {
	return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		next(&writer{ResponseWriter: w, gone: r.Context().Done(), write: write, header: header}, r)
	}
}

// WriteHeader changes the header first.
func (w *writer) WriteHeader(code int) {
	if !w.begun && w.header != nil {
		w.header(w.Header())
	}
	w.begun = true
	w.ResponseWriter.WriteHeader(code)
}

func (w *writer) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.write(w, p)
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) pass(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.at += int64(n)
	return n, err
}

func (w *writer) flush() {
	// Without one the bytes come later.
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}
