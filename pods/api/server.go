package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/unixsocket"
)

const (
	headerTime = 10 * time.Second // to send a request's head
	// requestTime ends every request, also one that its client sends or reads slowly, except a
	// watch, which has writeTime for each write.
	requestTime = time.Minute
	idleTime    = 10 * time.Second // between two requests
	writeTime   = 10 * time.Second
	maxHeader   = 16 << 10
	maxClients  = 64
	maxWatches  = 32
	// wholeTime is how long after its start a server has requests wait for Options.Whole. After that
	// they are answered all the same.
	wholeTime = 10 * time.Second
)

// Options are what a server serves.
type Options struct {
	Agent Agent
	// Whole is closed once the agent's lists have all that is on record: who asks before waits for it,
	// or would miss some of them. nil does not wait.
	Whole <-chan struct{}
	// Shutdown ends the pods when the node shuts down; nil refuses to.
	Shutdown Shutdowner
	// Metrics writes metrics in the text format of Prometheus after those of this package; nil
	// writes none.
	Metrics func(io.Writer) error
	// Usage measures the running containers of pods; nil measures none.
	Usage func(context.Context) ([]ContainerUsage, error)
	// Server is what is told to those who use the socket of this API.
	Server ServerInfo
	Logger *slog.Logger

	// header and request take the place of headerTime and requestTime in tests.
	header, request time.Duration
}

// Server serves until it is closed.
type Server struct {
	http     http.Server
	listener net.Listener
	served   chan error
	path     string // of the socket, "" for the read-only API
}

// Listen starts to serve everything on a unix socket, for its owner only. A socket that was left
// there is replaced: the caller knows that no server uses it. The caller closes the server.
func Listen(path string, o Options) (*Server, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("replace socket: %w", err)
	}
	l, err := unixsocket.Listen(path, 0o600)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	observe(mux, o)
	s := &service{agent: o.Agent, power: o.Shutdown, info: o.Server, usage: o.Usage, watches: make(chan struct{}, maxWatches)}
	s.register(mux)
	return serve(l, path, mux, o), nil
}

// ListenReadOnly starts to serve what may be read without authentication on a TCP address,
// "HOST:PORT". The caller closes the server.
func ListenReadOnly(address string, o Options) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", address, err)
	}
	mux := http.NewServeMux()
	observe(mux, o)
	return serve(l, "", ReadOnly(mux, l.Addr()), o), nil
}

func serve(l net.Listener, path string, h http.Handler, o Options) *Server {
	request := cmp.Or(o.request, requestTime)
	s := &Server{listener: l, served: make(chan error, 1), path: path}
	s.http = http.Server{
		Handler: awaited(h, o), ReadHeaderTimeout: cmp.Or(o.header, headerTime), ReadTimeout: request, WriteTimeout: request, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	go func() {
		s.served <- s.http.Serve(Limit(l, maxClients))
	}()
	return s
}

// awaited has requests about pods wait until all pods are known; those about the process do not.
func awaited(h http.Handler, o Options) http.Handler {
	if o.Whole == nil {
		return h
	}
	late := make(chan struct{})
	time.AfterFunc(wholeTime, func() { close(late) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/livez", "/metrics":
		default:
			select {
			case <-o.Whole:
			case <-late:
			case <-r.Context().Done():
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// Addr is the address on which it listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close ends active requests and stops serving.
func (s *Server) Close() error {
	err := s.http.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if s.path == "" {
		return err
	}
	if rerr := os.Remove(s.path); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("remove socket: %w", rerr))
	}
	return err
}

// Limit has a listener accept at most so many connections at once; further clients wait.
func Limit(l net.Listener, most int) net.Listener {
	return &limited{Listener: l, places: make(chan struct{}, most), closed: make(chan struct{})}
}

// limited is a listener that accepts so many connections at once as there are places; further
// clients wait.
type limited struct {
	net.Listener
	places chan struct{}
	once   sync.Once
	closed chan struct{}
}

// Accept waits for a place and a client.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &counted{Conn: c, release: func() { <-l.places }}, nil
}

// Close stops to listen; connections stay.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// counted is a connection with a place.
type counted struct {
	net.Conn
	once    sync.Once
	release func()
}

// Close gives the place back.
func (c *counted) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.release)
	return err
}

// errBusy is what a client reads that is one too many.
func errBusy(what string, most int) error {
	return fmt.Errorf("%s: there are %d already: %w", what, most, errdefs.ErrResourceExhausted)
}
