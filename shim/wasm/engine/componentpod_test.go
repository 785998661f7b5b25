package engine

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/tests/pty"
)

// A component's files are those of its user, and mounts keep their flags.
func TestFilesOfComponents(t *testing.T) {
	own, readonly := openDir(t), openDir(t)
	if err := os.Chmod(own, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(own, 4321, 4321); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(readonly, "in"), []byte("content\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, path string
		user, code uint32
		want       string
	}{
		{"read", "/ro/in", 4321, 0, "content\n"},
		{"write", "/ro/new", 4321, 1, "read-only\n"},
		{"write", "/own/new", 4322, 1, "access\n"},
		{"write", "/own/new", 4321, 0, ""},
		{"read", "/own/new", 0, 0, "written\n"}, // as nobody
		{"write", "/new", 4321, 1, "access\n"},
	} {
		b := newBench(t, "component", c.what, c.path)
		b.joinNetwork()
		b.bundle.Spec.Process.User = specs.User{UID: c.user, GID: c.user}
		b.bundle.Spec.Mounts = []specs.Mount{
			{Type: "bind", Source: own, Destination: "/own", Options: []string{"rbind", "rw"}},
			{Type: "bind", Source: readonly, Destination: "/ro", Options: []string{"rbind", "ro", "rro"}},
		}
		if exit := b.runToEnd(); exit.Code != c.code || b.stdout.all() != c.want {
			t.Errorf("%s %s as %d: exit %+v, output %q", c.what, c.path, c.user, exit, b.stdout.all())
		}
	}
	if info, err := os.Stat(filepath.Join(own, "new")); err != nil || info.Sys().(*syscall.Stat_t).Uid != 4321 {
		t.Errorf("the new file: %v", err)
	}
}

// A component learns of its limit by a growth that is refused; a larger limit lets it grow on.
func TestMemoryOfComponents(t *testing.T) {
	limit := func(b *bench, mib int64) *specs.LinuxResources {
		bytes := mib << 20
		r := &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &bytes}}
		b.bundle.Spec.Linux.Resources = r
		return r
	}
	for _, c := range []struct {
		what string
		code uint32
		want string
	}{{"fill", 3, "then no more\n"}, {"take", 134, ""}} {
		b := newBench(t, "component", c.what, "200")
		b.joinNetwork()
		limit(b, 48)
		if exit := b.runToEnd(); exit.Code != c.code || exit.OOMKilled != (c.code == 134) || !strings.HasSuffix(b.stdout.all(), c.want) {
			t.Errorf("%s: exit %+v, output %q", c.what, exit, b.stdout.all())
		}
	}

	b := newBench(t, "component", "sleep")
	b.joinNetwork()
	limit(b, 32)
	c := b.create()
	start(t, c.Init())
	b.stdout.await(t, "ready\n")
	if err := c.Update(context.Background(), limit(b, 96)); err != nil {
		t.Fatal(err)
	}
	if groups := groupDirs(b.bundle.Spec.Linux.CgroupsPath); len(groups) == 0 {
		t.Error("there is no cgroup")
	}
	stillRuns(t, c.Init())
	signal(t, c.Init(), unix.SIGTERM)
	if exit := ended(t, c.Init()); exit.Code != 143 {
		t.Errorf("exit %+v", exit)
	}
}

// A component sees its terminal.
func TestTerminalOfComponents(t *testing.T) {
	master, slave := pty.Open(t)
	b := newBench(t, "component", "terminals")
	b.joinNetwork()
	b.io = shim.IO{Stdin: slave, Stdout: slave, Stderr: slave, Terminal: true, Console: master}
	c, err := b.engine.Create(context.Background(), b.bundle, b.io, shim.Options{})
	slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.delete(c) })
	start(t, c.Init())
	if err := c.Init().Resize(99, 44); err != nil {
		t.Error(err)
	}
	ended(t, c.Init())
	said := make([]byte, 100)
	n, err := master.Read(said)
	if err != nil || string(said[:n]) != "input output error\r\n" {
		t.Errorf("terminal shows %q, %v", said[:n], err)
	}
	plain := newBench(t, "component", "terminals")
	plain.joinNetwork()
	if exit := plain.runToEnd(); exit.Code != 0 || plain.stdout.all() != "no input no output no error\n" {
		t.Errorf("exit %+v, output %q", exit, plain.stdout.all())
	}
}

// full is a listener of the pod that takes no further connections: who connects waits.
func (p *pod) full(t *testing.T) {
	t.Helper()
	p.do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			t.Cleanup(func() { unix.Close(fd) })
			if err = unix.Bind(fd, &unix.SockaddrInet4{Port: 81, Addr: [4]byte{127, 0, 0, 1}}); err == nil {
				err = unix.Listen(fd, 0)
			}
		}
		for range 4 {
			var c int
			if err == nil {
				c, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			}
			if err == nil {
				t.Cleanup(func() { unix.Close(c) })
				if err = unix.Connect(c, &unix.SockaddrInet4{Port: 81, Addr: [4]byte{127, 0, 0, 1}}); err == unix.EINPROGRESS {
					err = nil
				}
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// A stop ends a component that waits. With its grace it waits on, except for a clock: clocks strike
// then, so that a program can look around.
func TestStopOfComponents(t *testing.T) {
	p := newPod(t)
	p.full(t)
	for _, c := range []struct {
		args []string
		says string
		runs bool // after a stop with grace
	}{
		{[]string{"wait", "clock"}, "waiting\n", false},
		{[]string{"wait", "udp"}, "waiting\n", true},
		{[]string{"wait", "connect", "127.0.0.1", "81"}, "connecting\n", true},
	} {
		for _, wait := range []bool{false, true} {
			b := newBench(t, "component", c.args...)
			b.inPod(p)
			b.bundle.Facts.StopWait = wait
			container := b.create()
			start(t, container.Init())
			b.stdout.await(t, c.says)
			stillRuns(t, container.Init())
			signal(t, container.Init(), unix.SIGTERM)
			want := uint32(143)
			switch {
			case wait && !c.runs:
				want = 0
			case wait:
				stillRuns(t, container.Init())
				signal(t, container.Init(), unix.SIGKILL)
				want = 137
			}
			if exit := ended(t, container.Init()); exit.Code != want {
				t.Errorf("%q, with grace %v: exit %+v", c.args, wait, exit)
			}
		}
	}
}

// A component serves datagrams and reaches others by TCP and UDP, in its pod's network, by names
// that the pod's files have.
func TestNetworkOfComponents(t *testing.T) {
	p := newPod(t)
	server := newBench(t, "component", "udp")
	server.inPod(p)
	c := server.create()
	start(t, c.Init())
	server.stdout.await(t, "listening\n")
	l := p.listen(t, "127.0.0.1:82")
	defer l.Close()
	go func() {
		for {
			peer, err := l.Accept()
			if err != nil {
				return
			}
			answer(peer)
		}
	}()
	hosts := filepath.Join(openDir(t), "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 peer.test\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args []string
		code uint32
		want string
	}{
		{[]string{"send", "127.0.0.1", "8080", "datagram"}, 0, "datagram\n"},
		{[]string{"send", "peer.test", "8080", "by-name"}, 0, "by-name\n"},
		{[]string{"fetch", "peer.test", "82", "word"}, 0, "connecting\nyou said word\n"},
		{[]string{"fetch", "peer.test", "83", "word"}, 114, "connecting\n"}, // connection-refused
	} {
		b := newBench(t, "component", row.args...)
		b.inPod(p)
		b.bundle.Spec.Mounts = []specs.Mount{{Type: "bind", Source: hosts, Destination: "/etc/hosts", Options: []string{"bind", "ro"}}}
		if exit := b.runToEnd(); exit.Code != row.code || b.stdout.all() != row.want {
			t.Errorf("%q: exit %+v, output %q", row.args, exit, b.stdout.all())
		}
	}
	signal(t, c.Init(), unix.SIGTERM)
	if exit := ended(t, c.Init()); exit.Code != 143 {
		t.Errorf("exit %+v", exit)
	}
}

// answer answers what it is told.
func answer(peer net.Conn) {
	defer peer.Close()
	said := make([]byte, 100)
	n, err := peer.Read(said)
	if err == nil {
		_, _ = peer.Write(append([]byte("you said "), said[:n]...)) // the guest's output tells
	}
}
