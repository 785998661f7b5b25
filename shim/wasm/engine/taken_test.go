package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/wasm/guest"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// What may come of an attempt beside an errno's name.
const (
	ok     = "ok"
	killed = "killed" // the end of the process by SIGSYS
)

// facts is what a taken process is told about the world that it is not to reach.
type facts struct {
	Secret   string `json:"secret"`   // a file of the host
	Cgroup   string `json:"cgroup"`   // the container's own, below the hierarchies
	Pid      int    `json:"pid"`      // of a process of the host
	Port     int    `json:"port"`     // of a listener on the host's loopback
	Abstract string `json:"abstract"` // name of a unix socket of the host, without the @
	Free     string `json:"free"`     // name of one that there is not
}

// takenPrefix begins the names by which this binary has the guest face of a process that is taken
// over.
const takenPrefix = "taken-"

// asTaken runs the face that this binary was called by, if it is one of a taken process.
func asTaken(args []string) bool {
	at, ok := strings.CutPrefix(filepath.Base(args[0]), takenPrefix)
	if !ok || len(args) < 2 || args[1] != "guest" {
		return false
	}
	os.Exit(guest.Taken(args[2:], guest.Moment(at), misbehave))
	return true
}

// misbehave makes the attempts that its arguments name and says what came of each.
func misbehave(args []string) {
	var f facts
	if err := json.Unmarshal([]byte(args[1]), &f); err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range args[2:] {
		if name == "sleep" {
			fmt.Println("sleep=on")
			time.Sleep(time.Hour)
		}
		if talk := talks[name]; talk != nil {
			fmt.Println(name + "=on")
			talk()
			time.Sleep(time.Hour)
		}
		for _, a := range attempts() {
			if a.name == name {
				fmt.Println(name + "=" + outcome(a.try(f)))
			}
		}
	}
}

// talks are what a process does to its shim by their link.
var talks = map[string]func(){
	"nonsense":   func() { _, _ = unix.Write(link.FD, []byte("\x05\x00\x00\x00{{{{{")) },
	"huge frame": func() { _, _ = unix.Write(link.FD, append([]byte{0xff, 0xff, 0xff, 0xff}, make([]byte, 100<<10)...)) },
	"flood of messages": func() {
		frame := []byte("\x10\x00\x00\x00{\"kind\":\"heard\"}")
		for range 10000 {
			_, _ = unix.Write(link.FD, frame)
		}
	},
	"files": func() {
		for range 1000 {
			_ = unix.Sendmsg(link.FD, []byte{0}, unix.UnixRights(link.FD, 0, 1), nil, unix.MSG_DONTWAIT)
		}
	},
}

// outcome is an error's errno, or "ok".
func outcome(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return ok
	case errors.As(err, &errno) && errno == 0:
		return ok
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// takenEngine is an engine whose guests take their processes over.
func takenEngine(t *testing.T, at guest.Moment) *Engine {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(shared.dir, takenPrefix+string(at))
	if err := os.Symlink(self, name); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	e, err := New(Options{Self: name, CacheDir: filepath.Join(shared.dir, "cache")}, shared.reaper)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// outside makes what a taken process is not to reach.
func makeOutside(t *testing.T) facts {
	t.Helper()
	f := facts{Pid: os.Getpid(), Secret: filepath.Join(t.TempDir(), "secret")}
	if err := os.WriteFile(f.Secret, []byte("the host's\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	f.Port = listener.Addr().(*net.TCPAddr).Port
	f.Abstract = fmt.Sprintf("sunaba-test-%d", os.Getpid())
	f.Free = f.Abstract + "-free"
	unixListener, err := net.Listen("unix", "@"+f.Abstract)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unixListener.Close() })
	return f
}

// taken is a process that its guest has taken over, or is about to.
type taken struct {
	*bench
	at      guest.Moment
	further bool // it is not the container's first process
}

// newTaken makes the bundle of a container whose guest takes its process over: a pod's usual
// mounts, a volume, and an image with files that lead out.
func newTaken(t *testing.T, at guest.Moment, w way) *taken {
	t.Helper()
	b := w.newBench(t, "sleeper")
	b.engine = takenEngine(t, at)
	root := b.bundle.Rootfs
	if err := unix.Mknod(filepath.Join(root, "zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
		t.Fatal(err)
	}
	copyFile(t, "/bin/busybox", filepath.Join(root, "sh"))
	for _, name := range []string{"zero", "sh"} {
		if err := os.Chmod(filepath.Join(root, name), 0o4777); err != nil {
			t.Fatal(err)
		}
	}
	b.bundle.Spec.Mounts = []specs.Mount{
		{Type: "proc", Source: "proc", Destination: "/proc"},
		{Type: "sysfs", Source: "sysfs", Destination: "/sys", Options: []string{"ro"}},
		{Type: "cgroup", Source: "cgroup", Destination: "/sys/fs/cgroup", Options: []string{"ro"}},
		{Type: "tmpfs", Source: "tmpfs", Destination: "/dev"},
		{Type: "devpts", Source: "devpts", Destination: "/dev/pts"},
		{Type: "bind", Source: openDir(t), Destination: "/volume", Options: []string{"rbind"}},
		{Type: "bind", Source: "/proc", Destination: "/host-proc", Options: []string{"rbind", "ro"}},
	}
	return &taken{bench: b, at: at}
}

// run makes the attempts in a process of their own and returns what it said and how it ended.
func (k *taken) run(f facts, names ...string) (string, shim.Exit) {
	k.t.Helper()
	told, err := json.Marshal(f)
	if err != nil {
		k.t.Fatal(err)
	}
	args := append([]string{"/app.wasm", string(told)}, names...)
	k.bundle.Spec.Process.Args = args
	if k.further {
		exit, out, _ := runFurther(k.t, k.first(told), &specs.Process{Args: args, Cwd: "/"})
		return out, exit
	}
	if k.at == guest.Loading {
		k.pipes(false)
		_, err := k.engine.Create(context.Background(), k.bundle, k.io, shim.Options{})
		k.release()
		if err == nil {
			k.t.Fatal("a container was made of a process that never said so")
		}
		k.checkGone(0)
		return k.stdout.all(), shim.Exit{Message: err.Error()}
	}
	c := k.create()
	start(k.t, c.Init())
	exit := ended(k.t, c.Init())
	return k.stdout.all(), exit
}

// first is a container whose first process only sleeps.
func (k *taken) first(told []byte) shim.Container {
	k.t.Helper()
	k.bundle.Spec.Process.Args = []string{"/app.wasm", string(told), "sleep"}
	c := k.create()
	start(k.t, c.Init())
	k.stdout.await(k.t, "sleep=on")
	return c
}

// TestGuestThatOwnsItsProcess runs native code in place of wazero: the kernel's half of the sandbox
// holds alone. A call that ends the process has one of its own, all others share one.
func TestGuestThatOwnsItsProcess(t *testing.T) {
	for name, make := range map[string]func(*testing.T) *taken{
		"first process":     func(t *testing.T) *taken { return newTaken(t, guest.Running, forked) },
		"further process":   func(t *testing.T) *taken { k := newTaken(t, guest.Running, forked); k.further = true; return k },
		"prewarmed process": func(t *testing.T) *taken { return newTaken(t, guest.Running, warmed) },
		"while it is read":  func(t *testing.T) *taken { return newTaken(t, guest.Loading, forked) },
	} {
		t.Run(name, func(t *testing.T) {
			f := makeOutside(t)
			var together []string
			wants := map[string]string{}
			for _, a := range attempts() {
				k := make(t)
				f.Cgroup = k.bundle.Spec.Linux.CgroupsPath
				want := a.want
				if k.at == guest.Loading && a.loading != "" {
					want = a.loading
				}
				if k.further && a.further != "" {
					want = a.further
				}
				if want != killed {
					wants[a.name] = want
					together = append(together, a.name)
					continue
				}
				out, exit := k.run(f, a.name)
				bad := exit.Code != 128+uint32(unix.SIGSYS) || !strings.Contains(exit.Message, "system call list")
				if k.at == guest.Loading {
					bad = !strings.Contains(exit.Message, "ended with 159")
				}
				if bad || out != "" {
					t.Errorf("%s: ended with %+v: %s", a.name, exit, out)
				}
			}
			k := make(t)
			f.Cgroup = k.bundle.Spec.Linux.CgroupsPath
			out, exit := k.run(f, together...)
			for line := range strings.Lines(out) {
				name, got, _ := strings.Cut(strings.TrimSpace(line), "=")
				if want, known := wants[name]; !known || !slices.Contains(strings.Split(want, "|"), got) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
				delete(wants, name)
			}
			if len(wants) > 0 {
				t.Errorf("nothing came of %v: ended with %+v", wants, exit)
			}
			checkOutside(t, f)
		})
	}
}

// checkOutside looks whether anything got out.
func checkOutside(t *testing.T, f facts) {
	t.Helper()
	if text, err := os.ReadFile(f.Secret); err != nil || string(text) != "the host's\n" {
		t.Errorf("the host's file holds %q, %v", text, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(f.Secret)); err != nil || len(entries) != 1 {
		t.Errorf("the host's folder holds %v, %v", entries, err)
	}
}
