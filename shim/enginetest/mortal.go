package enginetest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/client"
)

// mortal is a shim that dies, and whoever has come after it.
type mortal struct {
	*client.Client
	t   *testing.T
	h   Harness
	dir string
	pid int // the shim's
}

func newMortal(t *testing.T, h Harness, binary string) *mortal {
	t.Helper()
	m := &mortal{t: t, h: h, dir: filepath.Join(t.TempDir(), NewID())}
	if err := os.Mkdir(m.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	var err error
	if m.Client, err = client.Start(within(t), client.StartOptions{Binary: binary, Namespace: "test", Dir: m.dir, WasmCache: h.WasmCache, Supervised: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Close()
		if err := client.Cleanup(within(t), binary, "test", m.dir, filepath.Join(m.dir, client.SocketName)); err != nil {
			t.Error(err)
		}
		if said, err := os.ReadFile(filepath.Join(m.dir, client.LogName)); err == nil && t.Failed() {
			t.Logf("the shims said: %s", said)
		}
	})
	m.reach()
	return m
}

// reach connects to the shim that there is.
func (m *mortal) reach() {
	m.t.Helper()
	c, err := client.Connect(within(m.t), m.dir)
	if err != nil {
		m.t.Fatal(err)
	}
	m.Close()
	m.Client, m.pid = c, c.PID()
}

// die kills the shim, also one that stands still, and reaches the next.
func (m *mortal) die() {
	m.t.Helper()
	before := m.pid
	m.signal(before, unix.SIGKILL)
	<-m.Done()
	if m.reach(); m.pid == before {
		m.t.Fatal("the dead shim answers")
	}
}

// stand has the shim notice nothing any more. Its threads stop one after the other: one that still
// ran could read what a container writes from now on, and die with it.
func (m *mortal) stand() {
	m.t.Helper()
	m.signal(m.pid, unix.SIGSTOP)
	m.await("every thread of the shim stands", func() bool {
		threads, err := filepath.Glob("/proc/" + strconv.Itoa(m.pid) + "/task/*/status")
		if err != nil {
			m.t.Fatal(err)
		}
		return len(threads) > 0 && !slices.ContainsFunc(threads, func(path string) bool {
			data, err := os.ReadFile(path)
			return err == nil && !strings.Contains(string(data), "State:\tT")
		})
	})
}

// holds says whether the shim has a file open. It closes an input when it has passed on all of it.
func (m *mortal) holds(path string) bool {
	m.t.Helper()
	links, err := filepath.Glob("/proc/" + strconv.Itoa(m.pid) + "/fd/*")
	if err != nil {
		m.t.Fatal(err)
	}
	return slices.ContainsFunc(links, func(link string) bool {
		to, err := os.Readlink(link)
		return err == nil && to == path
	})
}

func (m *mortal) signal(pid int, sig syscall.Signal) {
	m.t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		m.t.Fatalf("signal process %d: %v", pid, err)
	}
}

// ward is a container of a shim that dies.
type ward struct {
	*mortal
	id, path, log string
	stdin         *os.File // for Cat
	pid           int
	before        *Snapshot
}

// create makes a container, which is removed when the test ends.
func (m *mortal) create(p Program) *ward {
	m.t.Helper()
	b := m.h.Bundle(m.t, NewID(), p)
	w := &ward{mortal: m, id: b.ID, path: filepath.Join(m.dir, b.ID), log: filepath.Join(m.t.TempDir(), "0.log")}
	if err := os.Rename(b.Path, w.path); err != nil { // below the shim's directory, as bundles are
		m.t.Fatal(err)
	}
	b.Spec.Root = &specs.Root{Path: b.Rootfs}
	if strings.HasPrefix(b.Rootfs, b.Path+"/") {
		b.Spec.Root.Path = filepath.Join(w.path, strings.TrimPrefix(b.Rootfs, b.Path))
	}
	WriteBundle(m.t, m.dir, w.id, b.Spec)
	r := client.CreateRequest{
		ID: w.id, Bundle: w.path, Stdout: "cri://" + w.log, Stderr: "cri://" + w.log, Options: client.RuntimeOptions{Binary: m.h.Options.Binary},
	}
	if p.Kind == Cat {
		r.Stdin = filepath.Join(m.t.TempDir(), "in")
		if err := unix.Mkfifo(r.Stdin, 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	w.before = Before(m.t, w.path, w.id)
	var err error
	if w.pid, err = m.Create(within(m.t), r); err != nil {
		m.t.Fatalf("create: %v", err)
	}
	if r.Stdin != "" {
		if w.stdin, err = os.OpenFile(r.Stdin, os.O_WRONLY, 0); err != nil {
			m.t.Fatal(err)
		}
		m.t.Cleanup(func() { w.stdin.Close() })
	}
	return w
}

// run is create, and the program runs: a sleeping one has said that it is ready.
func (m *mortal) run(p Program) *ward {
	m.t.Helper()
	w := m.create(p)
	w.start()
	if p.Kind == Sleep {
		w.says("ready")
	}
	return w
}

func (w *ward) start() {
	w.t.Helper()
	if pid, err := w.Start(within(w.t), w.id, ""); err != nil || pid != w.pid {
		w.t.Fatalf("start: process %d, was %d: %v", pid, w.pid, err)
	}
}

// says waits for a line of output.
func (w *ward) says(line string) {
	w.t.Helper()
	w.await("the log has "+line, func() bool { return strings.Contains(w.output(), line+"\n") })
}

// output is what the program wrote, without the log's times.
func (w *ward) output() string {
	data, err := os.ReadFile(w.log)
	if err != nil {
		return ""
	}
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		_, rest, _ := strings.Cut(line, " stdout F ")
		out.WriteString(rest)
	}
	return out.String()
}

func (m *mortal) await(what string, is func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("%s: not so", what)
		}
	}
}

// zombie waits until the first process has ended and nobody knows.
func (w *ward) zombie() {
	w.t.Helper()
	w.await("the program ends", func() bool {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(w.pid) + "/status")
		return err == nil && strings.Contains(string(data), "State:\tZ")
	})
	if _, known := client.ReadExit(w.path); known {
		w.t.Fatal("its end is on record")
	}
}

// dieUnseen kills the first process while the shim stands still, and then the shim.
func (w *ward) dieUnseen() {
	w.t.Helper()
	w.stand()
	w.signal(w.pid, unix.SIGKILL)
	w.zombie()
	w.die()
}

// endInput writes the last of the program's input.
func (w *ward) endInput(text string) {
	w.t.Helper()
	if _, err := w.stdin.WriteString(text); err != nil {
		w.t.Fatal(err)
	}
	if err := w.CloseIO(within(w.t), w.id, ""); err != nil {
		w.t.Fatal(err)
	}
}

// is checks what a shim thinks that the container does.
func (w *ward) is(status client.Status) {
	w.t.Helper()
	s, err := w.State(within(w.t), w.id, "")
	if err != nil || s.Status != status || status != client.StatusStopped && s.PID != w.pid {
		w.t.Errorf("state %+v, %v; want process %d %s", s, err, w.pid, status)
	}
}

func (w *ward) kill() {
	w.t.Helper()
	if err := w.Kill(within(w.t), w.id, "", syscall.SIGKILL, false); err != nil {
		w.t.Fatalf("kill: %v", err)
	}
}

// ends waits for the container's end, by this shim and the next, and deletes it.
func (w *ward) ends(code uint32) {
	w.t.Helper()
	for i := range 2 {
		exit, err := w.Wait(within(w.t), w.id, "")
		if err != nil || exit.Code != code {
			w.t.Errorf("exit %+v, %v; want %d", exit, err, code)
		}
		if i == 0 {
			w.die()
		}
	}
	if err := w.Kill(within(w.t), w.id, "", syscall.SIGTERM, false); !errdefs.IsNotFound(err) {
		w.t.Errorf("signal after the end: %v, want not found", err)
	}
	if exit, err := w.Delete(within(w.t), w.id, ""); err != nil || exit.Code != code {
		w.t.Errorf("delete: %+v, %v; want %d", exit, err, code)
	}
	if exit, known := client.ReadExit(w.path); !known || exit.Code != code {
		w.t.Errorf("exit on record: %+v, %t", exit, known)
	}
	if err := os.Remove(filepath.Join(w.path, bundle.ExitName)); err != nil {
		w.t.Error(err)
	}
	w.before.Check(w.t)
	if err := os.RemoveAll(w.path); err != nil {
		w.t.Error(err)
	}
	if _, err := w.State(within(w.t), w.id, ""); !errdefs.IsNotFound(err) {
		w.t.Errorf("state of a deleted container: %v, want not found", err)
	}
}
