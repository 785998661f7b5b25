package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// port is what a test has a pod's port do.
type port func(ctx context.Context, port int32, stream io.ReadWriteCloser) error

// PortForward implements portforward.PortForwarder.
func (p port) PortForward(ctx context.Context, _, _ string, number int32, stream io.ReadWriteCloser) error {
	return p(ctx, number, stream)
}

// serve is a CRI server's address for a port.
func serve(t *testing.T, p port) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		portforward.ServePortForward(w, r, p, "pod", "", &portforward.V4Options{}, time.Hour, time.Minute, portforward.SupportedProtocols)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// pair are the two ends of a connection.
func pair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// The end of what the client sends reaches the port, which may answer after it.
func TestCarry(t *testing.T) {
	url := serve(t, func(_ context.Context, port int32, stream io.ReadWriteCloser) error {
		got, err := io.ReadAll(stream)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stream, "%d got %s", port, got)
		return err
	})
	client, server := pair(t)
	done := make(chan error, 1)
	go func() { done <- Carry(t.Context(), url, nil, 7000, server) }()
	text := strings.Repeat("there and back ", 100000)
	go func() {
		io.WriteString(client, text)
		client.CloseWrite()
	}()
	got, err := io.ReadAll(client)
	if err != nil || string(got) != "7000 got "+text {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPortIsNotReached(t *testing.T) {
	url := serve(t, func(context.Context, int32, io.ReadWriteCloser) error { return errors.New("nobody listens there") })
	client, server := pair(t)
	err := Carry(t.Context(), url, nil, 7001, server)
	if !errdefs.IsUnknown(err) || !strings.Contains(err.Error(), "port 7001") || !strings.Contains(err.Error(), "nobody listens there") {
		t.Errorf("error %v", err)
	}
	if got, err := io.ReadAll(client); len(got) > 0 || err != nil {
		t.Errorf("the client has %q, %v", got, err)
	}
}

func TestServerIsNotReached(t *testing.T) {
	for url, class := range map[string]error{"http://127.0.0.1:1/x": errdefs.ErrUnavailable, "%": errdefs.ErrInvalidArgument} {
		client, server := pair(t)
		if err := Carry(t.Context(), url, nil, 1, server); !errors.Is(err, class) {
			t.Errorf("%s: %v", url, err)
		}
		if _, err := io.ReadAll(client); err != nil {
			t.Errorf("%s: the client's connection does not end: %v", url, err)
		}
	}
}

// A caller that has enough ends the port's side too, although nobody says anything.
func TestCallerLeaves(t *testing.T) {
	started, left := make(chan struct{}), make(chan struct{})
	url := serve(t, func(_ context.Context, _ int32, stream io.ReadWriteCloser) error {
		close(started)
		io.Copy(io.Discard, stream)
		close(left)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	client, server := pair(t)
	go func() {
		<-started
		cancel()
	}()
	if err := Carry(ctx, url, nil, 1, server); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	<-left
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("the client's connection stays")
	}
}
