package runc_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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

// A runtime that dies with its shim in the middle of a start may leave an init that ends without
// having been the container's program. Nobody takes its exit for the program's.
func TestStartThatEndedWithItsShim(t *testing.T) {
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
	root := filepath.Join(t.TempDir(), "state")
	engine := runc.New(runc.Options{Root: root}, r)
	files := enginetest.BusyboxRoot(t)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for range 20 { // init may be faster than this test, and run its program
		b := enginetest.BusyboxBundle(files)(t, enginetest.NewID(), enginetest.Program{Kind: enginetest.Exit, Code: 42})
		c, err := engine.Create(t.Context(), b, shim.IO{Stdin: null, Stdout: null, Stderr: null}, shim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		fifo, err := unix.Open(filepath.Join(root, b.ID, "exec.fifo"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fifo)
		<-c.Init().Exited()
		task := bundle.Task{Root: root, Cgroup: c.Cgroup(), Stage: bundle.Starting, PID: c.Init().Pid()}
		adopted, err := engine.Adopt(t.Context(), b, shim.Adoption{Task: task, PID: task.PID, Starting: true})
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
