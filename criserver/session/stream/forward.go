package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/websocket"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
)

const (
	// dialLimit is how long connecting to a port may take.
	dialLimit = 30 * time.Second
	// lastWords is how long a client may still send after the port has ended its side.
	lastWords = time.Second
)

func (s *Server) servePortForward(w http.ResponseWriter, r *http.Request, req *runtime.PortForwardRequest) {
	if wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		s.serveTunnel(w, r, req)
		return
	}
	s.forwardPorts(w, r, req)
}

func (s *Server) forwardPorts(w http.ResponseWriter, r *http.Request, req *runtime.PortForwardRequest) {
	options, err := portforward.BuildV4Options(req.GetPort())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	// The context that the library gives to a SPDY client's streams does not end with the client.
	portforward.ServePortForward(w, r, &forwarder{s, r.Context()}, req.GetPodSandboxId(), "", options,
		idleLimit, creationLimit, portforward.SupportedProtocols)
}

// serveTunnel serves SPDY's bytes as the messages of a WebSocket.
func (s *Server) serveTunnel(w http.ResponseWriter, r *http.Request, req *runtime.PortForwardRequest) {
	server := websocket.Server{
		Handshake: func(config *websocket.Config, _ *http.Request) error {
			if !slices.Contains(config.Protocol, portforward.WebsocketsSPDYTunnelingPortForwardV1) {
				return websocket.ErrBadWebSocketProtocol
			}
			config.Protocol = []string{portforward.WebsocketsSPDYTunnelingPortForwardV1}
			return nil
		},
		Handler: func(ws *websocket.Conn) {
			ws.PayloadType = websocket.BinaryFrame
			inner := r.Clone(r.Context())
			inner.Header = http.Header{}
			inner.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
			inner.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
			inner.Header.Set(httpstream.HeaderProtocolVersion, portforward.PortForwardV1Name)
			s.forwardPorts(&tunnel{conn: ws, header: http.Header{}}, inner, req)
		},
	}
	server.ServeHTTP(w, r)
}

// tunnel is a response whose connection is a WebSocket that stands already: what is said of the
// upgrade is not sent.
type tunnel struct {
	conn   net.Conn
	header http.Header
}

// Header implements http.ResponseWriter.
func (t *tunnel) Header() http.Header { return t.header }

// WriteHeader implements http.ResponseWriter.
func (t *tunnel) WriteHeader(int) {}

// Write implements http.ResponseWriter.
func (t *tunnel) Write(p []byte) (int, error) { return len(p), nil }

// Hijack implements http.Hijacker.
func (t *tunnel) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return t.conn, bufio.NewReadWriter(bufio.NewReader(t.conn), bufio.NewWriter(t.conn)), nil
}

// forwarder connects one client's streams to ports.
type forwarder struct {
	server *Server
	client context.Context // ends when the client has disconnected
}

// PortForward implements portforward.PortForwarder.
func (f *forwarder) PortForward(ctx context.Context, sandboxID, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.client, cancel)()
	ns, err := f.server.o.NetNS(sandboxID)
	if err != nil {
		return err
	}
	conn, err := dial(ctx, ns, port)
	if err != nil {
		return err
	}
	defer conn.Close()
	return exchange(ctx, conn, stream)
}

// exchange copies in both directions. The end of the client's side is passed on, and the port may
// continue sending as long as it likes; the end of the port's side is the end soon after.
func exchange(ctx context.Context, conn *net.TCPConn, stream io.ReadWriteCloser) error {
	sent, received := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := io.Copy(conn, stream)
		sent <- errors.Join(err, conn.CloseWrite())
	}()
	go func() {
		_, err := io.Copy(stream, conn)
		received <- errors.Join(err, stream.Close())
	}()
	select {
	case <-received:
	case <-ctx.Done():
		return nil // the client has left
	}
	select {
	case <-sent:
	case <-ctx.Done():
	case <-time.After(lastWords):
	}
	return nil
}

// dial connects to a port of a network namespace's own loopback address, version 4 first; "" is
// this process's.
//
// One address is tried after the other by the thread that has entered the namespace: what Go does
// side by side it does on other threads.
func dial(ctx context.Context, ns string, port int32) (conn *net.TCPConn, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	connect := func() error {
		var errs []error
		for _, loopback := range []string{"127.0.0.1", "::1"} {
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(int(port))))
			if err == nil {
				conn = c.(*net.TCPConn)
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	if ns == "" {
		err = connect()
	} else {
		err = netns.Do(ns, connect)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to port %d of the pod: %w", port, err)
	}
	return conn, nil
}
