package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/thread"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
)

// pod is a network namespace with a loopback device, held by a thread that does what it is told in
// it.
type pod struct {
	calls chan func()
	path  string // of the namespace
}

func newPod(t *testing.T) *pod {
	t.Helper()
	p := &pod{calls: make(chan func())}
	ready := make(chan error)
	go thread.Run(func() { // the namespace ends with the thread
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = loopbackUp()
		}
		p.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		ready <- err
		for f := range p.calls {
			f()
		}
	})
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(p.calls) })
	return p
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// do runs f in the namespace.
func (p *pod) do(f func()) {
	done := make(chan struct{})
	p.calls <- func() { defer close(done); f() }
	<-done
}

// fetch reads everything from an address of the pod.
func (p *pod) fetch(address string) (text string, err error) {
	p.do(func() {
		var c net.Conn
		if c, err = (&net.Dialer{Timeout: patience}).Dial("tcp", address); err != nil {
			return
		}
		defer c.Close()
		var data []byte
		data, err = io.ReadAll(c)
		text = string(data)
	})
	return text, err
}

// inPod puts the bundle into the pod's network.
func (b *bench) inPod(p *pod) {
	for i, ns := range b.bundle.Spec.Linux.Namespaces {
		if ns.Type == specs.NetworkNamespace {
			b.bundle.Spec.Linux.Namespaces[i].Path = p.path
		}
	}
}

// listen opens a listener in the pod's network.
func (p *pod) listen(t testing.TB, address string) (l net.Listener) {
	t.Helper()
	p.do(func() {
		var err error
		if l, err = net.Listen("tcp", address); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestListenerInPodNetwork(t *testing.T) {
	p := newPod(t)
	b := newBench(t, "probe", "env:LISTEN_FDS", "serve")
	b.inPod(p)
	b.bundle.Facts.Listeners = []annotation.Listener{{Name: "http", Port: 80}, {Name: "taken", Port: 81, Optional: true}}
	defer p.listen(t, ":81").Close()
	c := b.create()
	if namespaceOf(t, c.Init().Pid(), "net") != mustReadlink(t, p.path) {
		t.Error("the guest is not in the pod's network namespace")
	}
	start(t, c.Init())
	b.stdout.await(t, "serve=http\n")
	for _, address := range []string{"127.0.0.1:80", "[::1]:80"} {
		if text, err := p.fetch(address); err != nil || text != "hello\n" {
			t.Errorf("%s: %q, %v", address, text, err)
		}
	}
	if out := b.stdout.soFar(); out != "env:LISTEN_FDS=1\nserve=http\n" {
		t.Errorf("stdout %q", out)
	}
	signal(t, c.Init(), unix.SIGTERM)
	if exit := ended(t, c.Init()); exit.Code != 5 {
		t.Errorf("exit %+v, want the guest's own 5", exit)
	}
	if namespaceOf(t, os.Getpid(), "net") == mustReadlink(t, p.path) {
		t.Error("the test's own thread was left in the pod")
	}
}

func TestListenerThatIsTaken(t *testing.T) {
	p := newPod(t)
	b := newBench(t, "probe", "serve")
	b.inPod(p)
	b.bundle.Facts.Listeners = []annotation.Listener{{Name: "http", Port: 82}}
	var taken net.Listener
	p.do(func() {
		var err error
		if taken, err = net.Listen("tcp", ":82"); err != nil {
			t.Error(err)
		}
	})
	defer taken.Close()
	b.pipes(false)
	_, err := b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{})
	b.release()
	if !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("got %v", err)
	}
	b.checkGone(0)
}

// TestCreatedGuestHoldsNoListener has a second guest of the pod take the ports of one that was
// created and never started.
func TestCreatedGuestHoldsNoListener(t *testing.T) {
	p := newPod(t)
	make := func(extra ...annotation.Listener) (*bench, shim.Container) {
		b := newBench(t, "probe", "env:LISTEN_FDS", "serve")
		b.inPod(p)
		b.bundle.Facts.Listeners = append(extra, annotation.Listener{Name: "http", Port: 83})
		return b, b.create()
	}
	_, unstarted := make()
	second, serving := make(annotation.Listener{Name: "other", Port: 84, Optional: true})
	third, optional := newBench(t, "probe", "env:LISTEN_FDS"), shim.Container(nil)
	third.inPod(p)
	third.bundle.Facts.Listeners = []annotation.Listener{{Name: "other", Port: 84, Optional: true}, {Name: "own", Port: 85}}
	optional = third.create()
	if text, err := p.fetch("127.0.0.1:83"); err == nil {
		t.Errorf("a guest that was not started answered %q", text)
	}
	start(t, serving.Init())
	second.stdout.await(t, "serve=other:http\n")
	if text, err := p.fetch("127.0.0.1:84"); err != nil || text != "hello\n" {
		t.Errorf("the second guest: %q, %v", text, err)
	}
	err := unstarted.Init().Start(t.Context())
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(fmt.Sprint(err), "port 83 (http)") {
		t.Errorf("start of the first guest: %v", err)
	}
	if exit := ended(t, unstarted.Init()); exit.Code == 0 || !strings.Contains(exit.Message, "port 83") {
		t.Errorf("the first guest ended with %+v", exit)
	}
	start(t, optional.Init())
	exit := ended(t, optional.Init())
	third.stdout.await(t, "env:LISTEN_FDS=1\n")
	if out := third.stdout.soFar(); exit.Code != 0 || out != "env:LISTEN_FDS=1\n" {
		t.Errorf("the third guest: %+v, %q", exit, out)
	}
	signal(t, serving.Init(), unix.SIGTERM)
	ended(t, serving.Init())
}

func mustReadlink(t *testing.T, path string) string {
	t.Helper()
	link, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return link
}
