package runc_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	goruntime "github.com/containerd/go-runc"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/enginetest"
	"github.com/sunaba-project/sunaba/shim/reaper"
	"github.com/sunaba-project/sunaba/shim/runc"
	"github.com/sunaba-project/sunaba/shim/shared/supervisor"
)

// heir is a supervisor that knows how every process has ended.
type heir struct {
	mu    sync.Mutex
	exits map[int]chan supervisor.Exit
}

func (h *heir) Exit(pid int) <-chan supervisor.Exit { return h.exit(pid) }

func (h *heir) exit(pid int) chan supervisor.Exit {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.exits[pid] == nil {
		h.exits[pid] = make(chan supervisor.Exit, 1)
	}
	return h.exits[pid]
}

func (h *heir) Report(e supervisor.Exit) error {
	select {
	case h.exit(e.PID) <- e:
	default:
	}
	return nil
}

func (h *heir) Watch(int) error { return nil }
func (h *heir) Claim(int) error { return nil }

// adoptive is an engine with a supervisor, and what its containers are made of.
type adoptive struct {
	*runc.Engine
	root, files string
	io          shim.IO
}

func newAdoptive(t *testing.T) adoptive {
	t.Helper()
	enginetest.NeedRoot(t)
	t.Cleanup(enginetest.RemoveCgroupParent)
	r, err := reaper.NewSupervised(&heir{exits: map[int]chan supervisor.Exit{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	before := goruntime.Monitor
	goruntime.Monitor = reaper.Monitor{Reaper: r}
	t.Cleanup(func() { goruntime.Monitor = before })
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	root := filepath.Join(t.TempDir(), "state")
	return adoptive{runc.New(runc.Options{Root: root}, r), root, enginetest.BusyboxRoot(t), shim.IO{Stdin: null, Stdout: null, Stderr: null}}
}

// create makes a container, and says what an adoption in the middle of its start is told.
func (a adoptive) create(t *testing.T, p enginetest.Program) (*shim.Bundle, shim.Container, shim.Adoption) {
	t.Helper()
	b := enginetest.BusyboxBundle(a.files)(t, enginetest.NewID(), p)
	c, err := a.Create(t.Context(), b, a.io, shim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	task := bundle.Task{Root: a.root, Cgroup: c.Cgroup(), Stage: bundle.Starting, PID: c.Init().Pid()}
	return b, c, shim.Adoption{Task: task, PID: task.PID, Starting: true}
}

// fifo is where a container's init waits for its start.
func (a adoptive) fifo(b *shim.Bundle) string { return filepath.Join(a.root, b.ID, "exec.fifo") }

// A runtime that dies with its shim before it removes the FIFO leaves a program that runs and a
// container that the runtime calls created.
func TestStartWhoseFIFOIsLeft(t *testing.T) {
	a := newAdoptive(t)
	b, c, adoption := a.create(t, enginetest.Program{Kind: enginetest.Sleep})
	if err := c.Init().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(a.fifo(b), 0o622); err != nil {
		t.Fatal(err)
	}
	adopted, err := a.Adopt(t.Context(), b, adoption)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-adopted.Init().Exited():
		t.Errorf("the program has ended with %d", adopted.Init().Exit().Code)
	default:
	}
	if err := adopted.Init().Signal(t.Context(), unix.SIGKILL, true); err != nil {
		t.Error(err)
	}
	if <-adopted.Init().Exited(); adopted.Init().Exit().Code != 137 {
		t.Errorf("the program was killed, and the container ended with %d", adopted.Init().Exit().Code)
	}
	if err := c.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

// openAndClose opens a FIFO for reading and closes it at once, until done: its writer waits for the
// next reader if it came after this one.
func openAndClose(t *testing.T, name string, done <-chan struct{}) {
	t.Helper()
	for {
		fifo, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fifo)
		select {
		case <-done:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// A runtime that dies with its shim in the middle of a start may leave an init that ends without
// having been the container's program. Nothing takes its exit for the program's.
func TestStartThatEndedWithItsShim(t *testing.T) {
	a := newAdoptive(t)
	for range 20 { // init may be faster than this test, and run its program
		b, c, adoption := a.create(t, enginetest.Program{Kind: enginetest.Exit, Code: 42})
		openAndClose(t, a.fifo(b), c.Init().Exited())
		adopted, err := a.Adopt(t.Context(), b, adoption)
		ran := c.Init().Exit().Code == 42
		switch {
		case ran && err != nil:
			t.Errorf("its program has run, and it is not adopted: %v", err)
		case ran:
			if <-adopted.Init().Exited(); adopted.Init().Exit().Code != 42 {
				t.Errorf("its program has ended with 42, and the container with %d", adopted.Init().Exit().Code)
			}
		case !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "has not run"):
			t.Errorf("init has ended with %d: %v, want not found", c.Init().Exit().Code, err)
		}
		if err := c.Delete(t.Context()); err != nil {
			t.Error(err)
		}
		if !ran {
			return
		}
	}
	t.Error("init was faster each time")
}

// A runtime that dies with its shim once the program runs, and before it writes down the process,
// leaves it to its own record who that is. The program must not be started again.
func TestProgramThatEndedBeforeItsPidWasKnown(t *testing.T) {
	a := newAdoptive(t)
	b, c, adoption := a.create(t, enginetest.Program{Kind: enginetest.Exit, Code: 42})
	if err := c.Init().Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-c.Init().Exited()
	// The runtime writes another file first, and died before it had the name.
	beside := filepath.Join(b.Path, "."+bundle.PidName)
	if err := os.Rename(filepath.Join(b.Path, bundle.PidName), beside); err != nil {
		t.Fatal(err)
	}
	adoption.PID, adoption.Task.PID = 0, 0
	adopted, err := a.Adopt(t.Context(), b, adoption)
	if err != nil {
		t.Fatal(err)
	}
	if <-adopted.Init().Exited(); adopted.Init().Exit().Code != 42 {
		t.Errorf("its program has ended with 42, and the container with %d", adopted.Init().Exit().Code)
	}
	if err := adopted.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(beside); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", beside, err)
	}
}
