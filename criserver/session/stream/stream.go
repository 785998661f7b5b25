// Package stream serves what the CRI answers with an address: exec, attach and port forwarding.
//
// A CRI request is kept under a token, whose address the client gets. The kubelet connects to it,
// mostly for its own client, and upgrades the connection: SPDY or WebSocket, exec and attach in the
// protocols channel.k8s.io up to v4 and, over WebSocket, v5; port forwarding in
// portforward.k8s.io, also tunnelled through a WebSocket. A token is valid for one connection,
// within a minute. There is no other authentication, so the server listens on the loopback address
// by default. A session's context ends when its client disconnects.
package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/session"
	"github.com/sunaba-project/sunaba/host/regular"
)

const (
	// idleLimit is how long a connection may stand still.
	idleLimit = 4 * time.Hour
	// creationLimit is how long a client has for making the streams of a connection.
	creationLimit = 30 * time.Second
	// headerLimit is how long it has for its request.
	headerLimit = 30 * time.Second
	// stopLimit is how long sessions have to end when the server stops.
	stopLimit = 2 * time.Second
)

// Sessions runs sessions in containers.
type Sessions interface {
	Exec(ctx context.Context, id string, cmd []string, s session.Streams) (int32, error)
	Attach(ctx context.Context, id string, s session.Streams) error
}

// Options configure Listen.
type Options struct {
	// Address is an IP address to listen on, Port a port or 0 for any that is free.
	Address string
	Port    int
	// CertFile and KeyFile are the server's certificate and key in PEM; without, it speaks HTTP.
	// They are read again for every connection, so that they can be replaced.
	CertFile, KeyFile string

	Sessions Sessions
	// NetNS returns a sandbox's network namespace, "" for the host's.
	NetNS  func(sandboxID string) (path string, err error)
	Logger *slog.Logger
}

// Server is a streaming server.
type Server struct {
	o        Options
	listener net.Listener
	http     *http.Server
	base     url.URL
	tokens   tokens
	sessions sync.WaitGroup

	mu      sync.Mutex
	clients map[*clientConn]struct{} // nil once the server stops
}

// Listen returns a server that listens, so that its addresses are known, and answers once Serve is
// called.
func Listen(o Options) (*Server, error) {
	s := &Server{o: o, clients: map[*clientConn]struct{}{}, base: url.URL{Scheme: "http"}}
	l, err := net.Listen("tcp", net.JoinHostPort(o.Address, strconv.Itoa(o.Port)))
	if err != nil {
		return nil, fmt.Errorf("listen for streams: %w", err)
	}
	s.base.Host = reachable(l.Addr())
	if o.CertFile != "" {
		s.base.Scheme = "https"
		if _, err := s.certificate(nil); err != nil {
			l.Close()
			return nil, err
		}
		// No HTTP/2: its connections cannot be taken over.
		l = tls.NewListener(l, &tls.Config{GetCertificate: s.certificate, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{token}", serveSession(s, s.serveExec))
	mux.HandleFunc("/attach/{token}", serveSession(s, s.serveAttach))
	mux.HandleFunc("/portforward/{token}", serveSession(s, s.servePortForward))
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: headerLimit, ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug)}
	s.listener = l
	return s, nil
}

// maxCertificate bounds the files of the server's certificate and key.
const maxCertificate = 1 << 20

func (s *Server) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	cert, err := regular.ReadConfigured(s.o.CertFile, maxCertificate)
	var key []byte
	if err == nil {
		key, err = regular.ReadConfigured(s.o.KeyFile, maxCertificate)
	}
	var c tls.Certificate
	if err == nil {
		c, err = tls.X509KeyPair(cert, key)
	}
	if err != nil {
		return nil, fmt.Errorf("load certificate of streaming server: %w", err)
	}
	return &c, nil
}

// reachable is where a client on this machine finds a listener.
func reachable(addr net.Addr) string {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil || !at.Addr().IsUnspecified() {
		return addr.String()
	}
	if at.Addr().Is4() {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port()).String()
	}
	return netip.AddrPortFrom(netip.IPv6Loopback(), at.Port()).String()
}

// Serve answers clients until Stop is called.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve streams: %w", err)
	}
	return nil
}

// Stop ends the server and all sessions. It may be called again.
func (s *Server) Stop() {
	_ = s.http.Close()     // the connections that are not taken over yet
	_ = s.listener.Close() // if Serve was never called
	s.mu.Lock()
	clients := s.clients
	s.clients = nil
	s.mu.Unlock()
	for c := range clients {
		c.Close()
		c.Conn.Close()
	}
	done := make(chan struct{})
	go func() {
		s.sessions.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stopLimit):
	}
}

// Exec keeps a request and returns where to connect. The container's id is a full one.
//
// # Errors
//
// ErrInvalidArgument for streams that cannot be; ErrResourceExhausted if too many clients have not
// connected yet.
func (s *Server) Exec(r *runtime.ExecRequest) (*runtime.ExecResponse, error) {
	if err := session.CheckCommand(r.GetCmd()); err != nil {
		return nil, err
	}
	if err := checkStreams(r); err != nil {
		return nil, err
	}
	at, err := s.keep("exec", r)
	return &runtime.ExecResponse{Url: at}, err
}

// Attach keeps a request and returns where to connect. The container's id is a full one.
//
// # Errors
//
// As Exec.
func (s *Server) Attach(r *runtime.AttachRequest) (*runtime.AttachResponse, error) {
	if err := checkStreams(r); err != nil {
		return nil, err
	}
	at, err := s.keep("attach", r)
	return &runtime.AttachResponse{Url: at}, err
}

// PortForward keeps a request and returns where to connect. The sandbox's id is a full one.
//
// # Errors
//
// ErrInvalidArgument for a port that is not one; ErrResourceExhausted if too many clients have not
// connected yet.
func (s *Server) PortForward(r *runtime.PortForwardRequest) (*runtime.PortForwardResponse, error) {
	for _, port := range r.GetPort() {
		if port < 1 || port > 65535 {
			return nil, fmt.Errorf("forward port %d: %w", port, errdefs.ErrInvalidArgument)
		}
	}
	at, err := s.keep("portforward", r)
	return &runtime.PortForwardResponse{Url: at}, err
}

// wants is what requests for exec and attach have in common.
type wants interface {
	GetStdin() bool
	GetStdout() bool
	GetStderr() bool
	GetTty() bool
}

func checkStreams(r wants) error {
	switch {
	case r.GetTty() && r.GetStderr():
		return fmt.Errorf("a terminal has no stderr of its own: %w", errdefs.ErrInvalidArgument)
	case !r.GetStdin() && !r.GetStdout() && !r.GetStderr():
		return fmt.Errorf("one of stdin, stdout and stderr is needed: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

func (s *Server) keep(kind string, request any) (string, error) {
	token, err := s.tokens.add(request)
	if err != nil {
		return "", err
	}
	return s.base.JoinPath(kind, token).String(), nil
}
