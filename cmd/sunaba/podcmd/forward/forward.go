// Package forward is the client of a pod's port: it carries a connection over the URL that a CRI
// server's PortForward answers with, by Kubernetes' portforward.k8s.io over SPDY.
package forward

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

const (
	// maxProblem bounds what the server may say about what went wrong, in bytes.
	maxProblem = 4 << 10
	// problemTime is how long the server may take to say so after the end of the data.
	problemTime = 5 * time.Second
)

// Carry copies between conn and a port of the pod that url is for, until the port's side ends or
// ctx does. The end of conn's side is passed on. Carry closes conn. A url is good for one call.
// The server of a url of https is trusted as trusted says, with nil as the system does.
//
// # Errors
//
// ErrUnavailable if the server cannot be reached; ErrUnknown with the server's text if it cannot
// reach the port; the context's.
func Carry(ctx context.Context, url string, trusted *tls.Config, port uint16, conn net.Conn) error {
	defer conn.Close()
	session, err := connect(ctx, url, trusted)
	if err != nil {
		return err
	}
	defer session.Close()
	defer context.AfterFunc(ctx, func() {
		session.Close()
		conn.Close()
	})()
	problem, data, err := open(session, port)
	if problem != nil {
		said := listen(problem)
		// The server may have said why, and ended, before the second stream was open.
		if err != nil || !carry(conn, data) {
			err = told(said, err)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func connect(ctx context.Context, address string, trusted *tls.Config) (httpstream.Connection, error) {
	// The server is on this machine: a proxy would not find it.
	transport, err := spdy.NewRoundTripperWithProxy(trusted, func(*http.Request) (*url.URL, error) { return nil, nil })
	if err != nil {
		return nil, fmt.Errorf("connect to the server's streams: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w: %w", address, err, errdefs.ErrInvalidArgument)
	}
	req.Header.Set(httpstream.HeaderProtocolVersion, portforward.ProtocolV1Name)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("connect to the server's streams: %w: %w", err, errdefs.ErrUnavailable)
	}
	defer resp.Body.Close()
	session, err := transport.NewConnection(resp)
	if err != nil {
		return nil, fmt.Errorf("connect to the server's streams: %w: %w", err, errdefs.ErrUnavailable)
	}
	return session, nil
}

// open makes the two streams that a connection to a port has. With an error the first may be there.
func open(session httpstream.Connection, port uint16) (problem, data httpstream.Stream, err error) {
	create := func(kind string) (httpstream.Stream, error) {
		h := http.Header{}
		h.Set(portforward.StreamType, kind)
		h.Set(portforward.PortHeader, strconv.Itoa(int(port)))
		h.Set(portforward.PortForwardRequestIDHeader, "0")
		stream, err := session.CreateStream(h)
		if err != nil {
			return nil, fmt.Errorf("forward port %d: open a stream: %w: %w", port, err, errdefs.ErrUnavailable)
		}
		return stream, nil
	}
	if problem, err = create(portforward.StreamTypeError); err != nil {
		return nil, nil, err
	}
	if err := problem.Close(); err != nil { // this side says nothing there
		return problem, nil, fmt.Errorf("forward port %d: %w: %w", port, err, errdefs.ErrUnavailable)
	}
	data, err = create(portforward.StreamTypeData)
	return problem, data, err
}

// listen reads what the server says about what went wrong, until it has ended: mostly nothing.
func listen(problem httpstream.Stream) <-chan string {
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(problem, maxProblem)) // what came before an end counts
		said <- string(text)
	}()
	return said
}

// told is an error with the server's text, or err if it says nothing.
func told(said <-chan string, err error) error {
	select {
	case text := <-said:
		if text != "" {
			return fmt.Errorf("%w: %w", errors.New(text), errdefs.ErrUnknown)
		}
	case <-time.After(problemTime):
	}
	return err
}

// carry copies until the port's side ends, or the client has left.
func carry(conn net.Conn, data httpstream.Stream) (left bool) {
	lost := make(chan error, 1)
	go func() {
		_, err := io.Copy(data, conn)
		data.Close()
		if err != nil {
			lost <- err
		}
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(conn, data) // a client that has left, or a port that has: both end it
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}()
	select {
	case <-ended:
		return false
	case <-lost:
		return true
	}
}
