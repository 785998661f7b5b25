package client

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sunaba-project/sunaba/host/unixsocket"
	"github.com/sunaba-project/sunaba/shim/api"
)

// supervisedShim is the socket that a supervisor holds, with one shim after the other behind it.
type supervisedShim struct {
	t        *testing.T
	dir      string
	listener *net.UnixListener
}

func newSupervisedShim(t *testing.T) *supervisedShim {
	t.Helper()
	dir := t.TempDir()
	l, err := unixsocket.Listen(filepath.Join(dir, SocketName), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &supervisedShim{t: t, dir: dir, listener: l}
}

// live begins the life of a shim with a pid. Calls for which hang is told are never answered; asked
// is told of each that comes.
func (k *supervisedShim) live(pid uint32, hang bool, asked chan string) (die func()) {
	k.t.Helper()
	f, err := k.listener.File()
	if err != nil {
		k.t.Fatal(err)
	}
	defer f.Close()
	own, err := net.FileListener(f)
	if err != nil {
		k.t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		k.t.Fatal(err)
	}
	answer := func(name string, v any) ttrpc.Method {
		return func(ctx context.Context, unmarshal func(any) error) (any, error) {
			var req task.StateRequest
			if err := unmarshal(&req); err != nil {
				return nil, err
			}
			asked <- name
			if hang && name != "Connect" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return v, nil
		}
	}
	server.RegisterService(api.TaskService, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"Connect": answer("Connect", &task.ConnectResponse{ShimPid: pid}),
		"Wait":    answer("Wait", &task.WaitResponse{ExitStatus: pid}),
		"Start":   answer("Start", &task.StartResponse{Pid: pid}),
		"Kill":    answer("Kill", &emptypb.Empty{}),
	}})
	taken := &takenConns{Listener: own}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(context.Background(), taken) }()
	return func() { server.Close(); <-served; taken.end() }
}

// takenConns ends connections as the death of a process does. A server that is closed may leave
// those that have calls under way.
type takenConns struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *takenConns) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

func (l *takenConns) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		conn.Close()
	}
}

// A shim that hangs holds nothing up, and the caller learns that it was that.
func TestSilentShim(t *testing.T) {
	k := newSupervisedShim(t)
	asked := make(chan string, 9)
	die := k.live(1, true, asked)
	defer die()
	c, err := ConnectSupervised(t.Context(), k.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Kill(t.Context(), "a", "", syscall.SIGTERM, false)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "did not answer Kill") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Kill(ctx, "a", "", syscall.SIGTERM, false); errors.Is(err, context.DeadlineExceeded) || err == nil {
		t.Errorf("a caller that has left: %v", err)
	}
}

func TestSupervisedShim(t *testing.T) {
	k := newSupervisedShim(t)
	first, second := make(chan string, 9), make(chan string, 9)
	die := k.live(1, true, first)
	back := make(chan int, 1)
	c, err := ConnectSupervised(t.Context(), k.dir, func(pid int) { back <- pid })
	if err != nil || c.PID() != 1 {
		t.Fatalf("connected to shim %d, %v", c.PID(), err)
	}
	<-first // Connect
	type result struct {
		code uint32
		err  error
	}
	waited, started := make(chan result, 1), make(chan result, 1)
	go func() { e, err := c.Wait(t.Context(), "a", ""); waited <- result{e.Code, err} }()
	<-first
	go func() { _, err := c.Start(t.Context(), "a", ""); started <- result{0, err} }()
	<-first
	die()
	if r := <-started; !errdefs.IsUnavailable(r.err) {
		t.Errorf("a start that was under way: %v, want that it is unavailable", r.err)
	}
	// Nobody answers; the socket is there.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.State(ctx, "a", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("a call between two shims: %v, want that it waits", err)
	}
	select {
	case <-c.Done():
		t.Fatal("the connection is over while somebody listens")
	default:
	}
	die = k.live(2, false, second)
	if pid := <-back; pid != 2 || c.PID() != 2 {
		t.Errorf("shim %d is back, PID says %d", pid, c.PID())
	}
	if r := <-waited; r.err != nil || r.code != 2 {
		t.Errorf("a wait that was under way ended with %d, %v", r.code, r.err)
	}
	if err := c.Kill(t.Context(), "a", "", syscall.SIGKILL, true); err != nil {
		t.Error(err)
	}
	k.listener.Close()
	die()
	<-c.Done()
	if _, err := c.Wait(t.Context(), "a", ""); !errdefs.IsUnavailable(err) {
		t.Errorf("a wait when the supervisor is gone: %v", err)
	}
	if _, err := ConnectSupervised(t.Context(), k.dir, nil); !errdefs.IsNotFound(err) {
		t.Errorf("connect when the supervisor is gone: %v", err)
	}
}

func TestCloseOfASupervisedShimIsNotItsEnd(t *testing.T) {
	k := newSupervisedShim(t)
	die := k.live(1, false, make(chan string, 9))
	c, err := ConnectSupervised(t.Context(), k.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-c.Done()
	if c, err = ConnectSupervised(t.Context(), k.dir, nil); err != nil {
		t.Fatal(err)
	}
	die() // and closed while there is no connection
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	t.Cleanup(k.live(2, false, make(chan string, 9)))
	<-c.Done()
}

// A shim without a supervisor has no successor, whoever listens where it did.
func TestAShimWithoutSupervisor(t *testing.T) {
	k := newSupervisedShim(t)
	asked := make(chan string, 9)
	die := k.live(1, true, asked)
	c, err := Connect(t.Context(), k.dir)
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	waited := make(chan error, 1)
	go func() { _, err := c.Wait(t.Context(), "a", ""); waited <- err }()
	<-asked
	die()
	if err := <-waited; !errdefs.IsUnavailable(err) {
		t.Errorf("a wait for it: %v", err)
	}
	<-c.Done()
}
