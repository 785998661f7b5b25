package probes

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
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PR19: a connection that opens passes, and nothing is sent.
func TestTCP(t *testing.T) {
	got := make(chan string, 1)
	open := serve(t, func(conn net.Conn) {
		data, _ := io.ReadAll(conn)
		got <- string(data)
		conn.Close()
	})
	tcp := func(port intstr.IntOrString) corev1.ProbeHandler {
		return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}
	}
	if out := probeOnce(t, tcp(portOf(t, open)), 5*time.Second); out.verdict != success || out.err != nil {
		t.Errorf("open: %+v", out)
	}
	if data := <-got; data != "" {
		t.Errorf("it sent %q", data)
	}
	closed := closedPort(t)
	if out := probeOnce(t, tcp(portOf(t, closed)), 5*time.Second); out.verdict != failure || out.output != "dial tcp "+closed+": connect: connection refused" {
		t.Errorf("closed: %+v", out)
	}
	if out := probeOnce(t, tcp(intstr.FromString("none")), 5*time.Second); out.verdict != unknown || out.err == nil {
		t.Errorf("unknown port: %+v", out)
	}
	// A listener that accepts nothing and whose queue is full does not answer.
	full := fullListener(t)
	start := time.Now()
	out := probeOnce(t, tcp(portOf(t, full)), 200*time.Millisecond)
	if out.verdict != failure || out.output != "dial tcp "+full+": i/o timeout" || time.Since(start) > 20*time.Second {
		t.Errorf("full: %+v after %v", out, time.Since(start))
	}
}

// fullListener listens with a queue that has no room.
func fullListener(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for range 8 {
		conn, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the queue of a listener does not fill")
	return ""
}

// PR21: what the health service says.
func TestGRPC(t *testing.T) {
	agents := make(chan string, 10)
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		agents <- strings.Join(md.Get("user-agent"), ",")
		if request.(*healthpb.HealthCheckRequest).Service == "slow" {
			<-ctx.Done()
		}
		return handler(ctx, request)
	}))
	status := health.NewServer()
	status.SetServingStatus("down", healthpb.HealthCheckResponse_NOT_SERVING)
	healthpb.RegisterHealthServer(server, status)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	t.Cleanup(server.Stop)
	bare := grpc.NewServer()
	lb, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go bare.Serve(lb)
	t.Cleanup(bare.Stop)
	closed, mute := closedPort(t), serve(t, func(conn net.Conn) { io.Copy(io.Discard, conn); conn.Close() })
	down, slow, other, empty := "down", "slow", "other", ""
	const limit = 400 * time.Millisecond
	for _, tt := range []struct {
		name, address string
		service       *string
		verdict       verdict
		output        string // its beginning
	}{
		{"no service", l.Addr().String(), nil, success, ""},
		{"empty service", l.Addr().String(), &empty, success, ""},
		{"not serving", l.Addr().String(), &down, failure, `service unhealthy (responded with "NOT_SERVING")`},
		{"unknown service", l.Addr().String(), &other, failure, "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"},
		{"slow", l.Addr().String(), &slow, failure, "timeout: health rpc did not complete within 400ms"},
		{"unimplemented", lb.Addr().String(), nil, failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): "},
		{"closed", closed, nil, failure, fmt.Sprintf("timeout: failed to connect service %q within 400ms: context deadline exceeded", closed)},
		{"mute", mute, nil, failure, fmt.Sprintf("timeout: failed to connect service %q within 400ms: context deadline exceeded", mute)},
	} {
		start := time.Now()
		out := probeOnce(t, corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: portOf(t, tt.address).IntVal, Service: tt.service}}, limit)
		if out.verdict != tt.verdict || !strings.HasPrefix(out.output, tt.output) || out.err != nil || time.Since(start) > limit+20*time.Second {
			t.Errorf("%s: %+v after %v", tt.name, out, time.Since(start))
		}
	}
	if agent := <-agents; !strings.HasPrefix(agent, "kube-probe/sunaba-1.2.3 ") {
		t.Errorf("user agent %q", agent)
	}
	mode := corev1.GRPCProbeModeTLS
	if out := probeOnce(t, corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1, Mode: &mode}}, limit); out.err == nil || !strings.Contains(out.err.Error(), "grpc.mode") {
		t.Errorf("TLS: %+v", out)
	}
}

// HK9, HK10: the agent makes the request; any answer is a success, headers as probes except the
// agent's name.
func TestHookHTTP(t *testing.T) {
	var agent string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent = r.UserAgent() + r.Header.Get("Authorization")
		w.WriteHeader(500)
	}))
	defer server.Close()
	c := &corev1.Container{Name: "app"}
	hook := func(a corev1.HTTPGetAction) (string, error) {
		return HookHTTP(t.Context(), &a, c, "127.0.0.1", "sunaba-1.2.3")
	}
	if warning, err := hook(corev1.HTTPGetAction{Port: portOf(t, server.URL)}); warning != "" || err != nil || agent != "kube-lifecycle/sunaba-1.2.3" {
		t.Errorf("500: %q, %v, agent %q", warning, err, agent)
	}
	warning, err := hook(corev1.HTTPGetAction{Port: portOf(t, server.URL), Scheme: "HTTPS", HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "secret"}}})
	want := "request to HTTPS lifecycle hook " + server.Listener.Addr().String() + " got HTTP response, retry with HTTP succeeded"
	if warning != want || err != nil || agent != "kube-lifecycle/sunaba-1.2.3" {
		t.Errorf("HTTP under HTTPS: %q, %v, agent %q", warning, err, agent)
	}
	closed := closedPort(t)
	_, err = hook(corev1.HTTPGetAction{Port: portOf(t, closed)})
	if err == nil || !strings.HasPrefix(err.Error(), `run httpGet hook of container "app": Get "http://`+closed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := hook(corev1.HTTPGetAction{Port: intstr.FromString("none")}); err == nil || !strings.Contains(err.Error(), `no port with name "none"`) {
		t.Errorf("unknown port: %v", err)
	}
	mute := serve(t, func(conn net.Conn) { io.Copy(io.Discard, conn); conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := HookHTTP(ctx, &corev1.HTTPGetAction{Port: portOf(t, mute)}, c, "127.0.0.1", ""); err == nil {
		t.Error("a server that does not answer: no error")
	}
}

// HK11: the time, the end of the container or that of the grace ends it.
func TestHookSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := HookSleep(t.Context(), &corev1.SleepAction{Seconds: 3}, nil); err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		ended := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(ended) })
		start = time.Now()
		if err := HookSleep(t.Context(), &corev1.SleepAction{Seconds: 30}, ended); err != nil || time.Since(start) != time.Second {
			t.Errorf("container ended: after %v: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start = time.Now()
		if err := HookSleep(ctx, &corev1.SleepAction{Seconds: 30}, nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2*time.Second {
			t.Errorf("grace is over: after %v: %v", time.Since(start), err)
		}
		if err := HookSleep(t.Context(), &corev1.SleepAction{}, nil); err != nil {
			t.Errorf("zero seconds: %v", err)
		}
	})
}
