package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// Bounds of connections.
const (
	headTime = 10 * time.Second
	idleTime = 120 * time.Second
	maxHead  = 64 << 10
	crowd    = 64 // connections, or requests over fewer of them
)

// quietTime is how long no request is active before the server rests.
const quietTime = 10 * time.Second

// together is how long after a request of another connection they have turns.
const together = 100 * time.Millisecond

// Handler answers requests.
type Handler interface {
	http.Handler
	Wait() // returns when what ServeHTTP has started has ended; no request may be under way
}

// Server serves one handler.
type Server struct {
	http     *http.Server
	handler  Handler
	listener *listener
	access   *accessLog // nil = none
	crowded  func()
	turns    *turns

	mu    sync.Mutex
	busy  int       // requests under way
	last  string    // address of the client that has sent the last request
	mixed time.Time // when that was another one than before
	quiet *time.Timer
	drain sync.Once
}

// NewServer makes a server on a listener, which it closes. Access is where a line for each request
// is written, nil for nowhere. rest is called when there has been no request for a while, to give
// memory back, crowded with each request while many connections or requests take memory.
func NewServer(l *net.TCPListener, h Handler, access io.Writer, rest, crowded func()) *Server {
	s := &Server{handler: h, listener: newListener(l, maxConns), crowded: crowded, turns: newTurns()}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: headTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHead, Protocols: protocols,
		ConnState:                    s.changed,
		ErrorLog:                     log.New(io.Discard, "", 0), // what clients do wrong
		DisableGeneralOptionsHandler: true,                       // the guest answers OPTIONS *
	}
	if access != nil {
		s.access = &accessLog{to: access}
		s.http.ConnContext = withConn
	}
	s.quiet = time.AfterFunc(math.MaxInt64, rest) // after the first request
	return s
}

// Serve returns when Drain has let everything end, with nil, or an error that the listener gave.
func (s *Server) Serve() error {
	defer s.turns.event.Close()
	err := s.http.Serve(s.listener)
	if s.listener.draining.Load() && (errors.Is(err, errDrained) || errors.Is(err, net.ErrClosed)) {
		_ = s.http.Shutdown(context.Background()) // it waits for every request
		if s.access != nil {
			s.access.due.Wait()
		}
		s.handler.Wait()
		s.quiet.Stop()
		return nil
	}
	return fmt.Errorf("accept connections: %w", err)
}

// Drain makes Serve end: see the package. It may be called at any time, and again.
func (s *Server) Drain() { s.drain.Do(s.listener.drain) }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	busy, turns := s.begin(r.RemoteAddr)
	defer s.end()
	if turns {
		// net/http has started the goroutine that notices when the client leaves. It runs first, else
		// the end of the request would wait for its first turn, the next request would be there by
		// then, and those of other connections would not be: the runtime asks for them when it has
		// nothing to run.
		runtime.Gosched()
	}
	if busy > crowd || len(s.listener.places) > crowd {
		s.crowded()
	}
	if s.access == nil {
		s.handler.ServeHTTP(w, r)
		return
	}
	m := &meter{ResponseWriter: w, began: time.Now()}
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		m.before = c.sent.Load()
	}
	defer s.access.await(r, m) // also where the response is broken off by a panic
	s.handler.ServeHTTP(m, r)
}

// changed is called by a connection's goroutine: between two requests it writes the line of the
// first, and waits for its turn if there are requests of other connections.
func (s *Server) changed(nc net.Conn, state http.ConnState) {
	if c, ok := nc.(*conn); ok && c.after != nil && state != http.StateActive {
		c.after()
		c.after = nil
	}
	s.mu.Lock()
	turns := state == http.StateIdle && s.haveTurns()
	s.mu.Unlock()
	if turns {
		s.turns.wait()
	}
}

// haveTurns says whether connections have turns. The caller holds mu.
func (s *Server) haveTurns() bool { return time.Since(s.mixed) < together }

// begin counts a request in and returns how many there are, and whether connections have turns.
func (s *Server) begin(from string) (busy int, turns bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != from {
		s.last, s.mixed = from, time.Now()
	}
	if s.busy++; s.busy == 1 {
		s.quiet.Stop()
	}
	return s.busy, s.haveTurns()
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy--; s.busy == 0 {
		s.quiet.Reset(quietTime)
	}
}
