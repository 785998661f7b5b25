// Package page serves the status page of a node: static files that are part of the program, and a
// stream of states for as long as somebody looks. It is read-only, and knows no user: who reaches
// the address sees all of it.
//
// What is shown comes from strangers, who name pods and images. The page puts it into text nodes
// only, and its content security policy runs nothing but its own script.
package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/pods/api"
)

// Config is the table [page] of the configuration.
type Config struct {
	Address string `toml:"address"`
}

// Check refuses an address on which no page can be served.
func (c Config) Check() error {
	if c.Address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(c.Address)
	if err != nil {
		return fmt.Errorf("page.address %q is not \"HOST:PORT\"", c.Address)
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "localhost" {
		return fmt.Errorf("page.address %q: host %q is not an IP address or \"localhost\"", c.Address, host)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("page.address %q: port %q is not a number from 0 to 65535", c.Address, port)
	}
	return nil
}

// Host is the address without its port, "" for none and for a name.
func (c Config) Host() string {
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil || host == "localhost" {
		return ""
	}
	return host
}

const (
	stateTime  = 2 * time.Second  // between two states
	beatTime   = 15 * time.Second // between two signs of life
	headerTime = 10 * time.Second // to send a request's head
	writeTime  = 10 * time.Second // for one write
	deadTime   = 30 * time.Second // until a client that does not acknowledge is given up
	idleTime   = time.Minute
	maxHeader  = 16 << 10
	maxClients = 64
	retry      = "10" // seconds
)

// Options configure Listen.
type Options struct {
	Address string
	Logger  *slog.Logger

	// state, beat and write take the place of stateTime, beatTime and writeTime in tests.
	state, beat, write time.Duration
}

// Server serves the page. A nil one serves nothing.
type Server struct {
	o        Options
	listener net.Listener
	http     http.Server
	hub      hub
	served   chan error // nil before Start
	closing  sync.Once
	closed   error
}

// Listen takes the address, so that a start fails where another program has it. Clients wait until
// Start is called. For an empty address it returns nil. The caller closes the server.
func Listen(o Options) (*Server, error) {
	if o.Address == "" {
		return nil, nil
	}
	config := net.ListenConfig{Control: giveUp}
	l, err := config.Listen(context.Background(), "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("serve status page (page.address): %w", err)
	}
	s := &Server{o: o, listener: l}
	s.hub.ctx, s.hub.stop = context.WithCancel(context.Background())
	return s, nil
}

// giveUp has the kernel end the connections of clients that have vanished.
func giveUp(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadTime.Milliseconds()))
	})
	return errors.Join(err, failed)
}

// Addr is the address on which it listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Start serves. read is called while somebody looks, never twice at a time.
func (s *Server) Start(read func(context.Context) State) {
	if s == nil {
		return
	}
	s.hub.read, s.hub.every, s.hub.viewers = read, cmp.Or(s.o.state, stateTime), map[*viewer]struct{}{}
	s.http = http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: time.Minute, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
	}
	s.served = make(chan error, 1)
	go func() { s.served <- s.http.Serve(api.Limit(s.listener, maxClients)) }()
	if tcp, ok := s.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		s.o.Logger.Warn("the status page is served to everybody who reaches its address: keep page.address on loopback", "address", s.Addr().String())
	}
	s.o.Logger.Info("serving status page", "address", s.Addr().String())
}

// Close ends all streams and stops serving. It may be called again.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	s.closing.Do(func() { s.closed = s.close() })
	return s.closed
}

func (s *Server) close() error {
	s.hub.close()
	if s.served == nil {
		return s.listener.Close()
	}
	err := s.http.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	s.hub.working.Wait()
	return err
}
