package stream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// serveSession makes an HTTP handler of one that serves the request of a token.
func serveSession[R any](s *Server, serve func(w http.ResponseWriter, r *http.Request, request R)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodPost {
			w.Header().Set("Allow", "GET, POST")
			http.Error(w, "only GET and POST", http.StatusMethodNotAllowed)
			return
		}
		kept, ok := s.tokens.take(r.PathValue("token"))
		request, fits := kept.(R)
		if !ok || !fits {
			http.NotFound(w, r)
			return
		}
		s.sessions.Add(1)
		defer s.sessions.Done()
		ctx, leave := context.WithCancel(r.Context())
		defer leave()
		t := &takeover{ResponseWriter: w, server: s, leave: leave}
		serve(t, r.WithContext(ctx), request)
		if t.conn != nil {
			t.conn.Close() // also where the protocol's implementation did not
		}
	}
}

// takeover is a response whose connection, once it is taken over, tells when the client
// disconnects: net/http does not look at it any more then.
type takeover struct {
	http.ResponseWriter
	server *Server
	leave  context.CancelFunc
	conn   *clientConn // once it is taken over
}

// Hijack implements http.Hijacker.
func (t *takeover) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c := &clientConn{Conn: conn, server: t.server, leave: t.leave, closed: make(chan struct{})}
	if !t.server.admit(c) {
		c.Close()
		return nil, nil, http.ErrServerClosed
	}
	early, err := buf.Peek(buf.Reader.Buffered())
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	t.conn = c
	go c.watch()
	in := io.MultiReader(bytes.NewReader(slices.Clone(early)), c)
	return c, bufio.NewReadWriter(bufio.NewReader(in), bufio.NewWriter(c)), nil
}

// admit counts a client in, unless the server stops.
func (s *Server) admit(c *clientConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients == nil {
		return false
	}
	s.clients[c] = struct{}{}
	return true
}

// clientConn is a client's connection. The session's context ends with it.
type clientConn struct {
	net.Conn
	server *Server
	leave  context.CancelFunc
	once   sync.Once
	closed chan struct{}
}

// lookEvery is how often a connection without a reader is checked for a disconnect.
const lookEvery = time.Second

// watch notices that the client has closed its side. Reading does not always tell: it stands still
// while a command does not take its input.
func (c *clientConn) watch() {
	tcp, ok := c.inner().(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.closed:
			return
		case <-tick.C:
		}
		gone := false
		err := raw.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			n, err := unix.Poll(fds, 0)
			gone = err == nil && n > 0
		})
		if gone || err != nil {
			c.leave()
			return
		}
	}
}

// inner is the connection below TLS.
func (c *clientConn) inner() net.Conn {
	if t, ok := c.Conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c.Conn
}

// Read implements net.Conn.
func (c *clientConn) Read(p []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	n, err := c.Conn.Read(p)
	if err != nil {
		c.leave()
	}
	return n, err
}

// Close implements net.Conn. What was written still reaches the client.
func (c *clientConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.leave()
		c.server.mu.Lock()
		delete(c.server.clients, c)
		c.server.mu.Unlock()
		_ = c.Conn.SetDeadline(time.Unix(1, 0)) // for those who still read or write
		go c.linger()
	})
	return nil
}

// lingerLimit is how long a client may take to close its side after the end of a session.
const lingerLimit = 30 * time.Second

// linger closes the connection after the client has closed its side. A connection that is closed
// while the client still sends is reset, which drops what the client has not read.
func (c *clientConn) linger() {
	defer c.Conn.Close()
	for _, conn := range []net.Conn{c.Conn, c.inner()} {
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // the client may have closed it already
		}
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(lingerLimit))
	_, _ = io.Copy(io.Discard, c.inner())
}
