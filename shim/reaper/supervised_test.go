package reaper

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/shared/supervisor"
)

// ward is a supervisor that looks, when an exit is reported, whether the process is still there.
type ward struct {
	mu      sync.Mutex
	reports []supervisor.Exit
	early   int // reports of what was not reaped yet
	asked   []string
	exits   map[int]chan supervisor.Exit
}

func (w *ward) Report(e supervisor.Exit) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if supervisor.IsChild(e.PID) {
		w.early++
	}
	w.reports = append(w.reports, e)
	return nil
}

func (w *ward) Watch(int) error { w.asked = append(w.asked, "watch"); return nil }
func (w *ward) Claim(int) error { w.asked = append(w.asked, "claim"); return nil }
func (w *ward) Exit(pid int) <-chan supervisor.Exit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.exits[pid]
}

func newKept(t *testing.T) (*Reaper, *ward) {
	t.Helper()
	w := &ward{exits: map[int]chan supervisor.Exit{}}
	r, err := NewSupervised(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, w
}

func TestExitsAreReportedBeforeTheyAreReaped(t *testing.T) {
	r, w := newKept(t)
	var got []int
	for _, script := range []string{"exit 0", "exit 7", "exit 255", "kill -TERM $$", "kill -KILL $$"} {
		cmd := exec.Command("/bin/sh", "-c", script)
		c, err := r.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Process.Release()
		got = append(got, wait(t, c))
	}
	if want := []int{0, 7, 255, 143, 137}; !slices.Equal(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
	var told []int
	for _, e := range w.reports {
		told = append(told, e.Code)
	}
	if !slices.Equal(told, got) || w.early != len(got) {
		t.Errorf("reported %v, %d of them before they were reaped; want all of %v", told, w.early, got)
	}
}

func TestGuard(t *testing.T) {
	r, w := newKept(t)
	cmd := exec.Command("/bin/sleep", "1000")
	c, err := r.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Process.Release()
	if err := r.Guard(c.Pid); err != nil {
		t.Fatal(err)
	}
	if err := r.Signal(c, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait(t, c)
	if err := r.Guard(c.Pid); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.asked, []string{"watch", "claim"}) {
		t.Errorf("the supervisor was asked to %v", w.asked)
	}
}

// TestAdopt adopts a process whose parent is the test's, and not the reaper.
func TestAdopt(t *testing.T) {
	w := &ward{exits: map[int]chan supervisor.Exit{}}
	r := &Reaper{supervisor: w, children: map[int]*Child{}}
	for _, known := range []bool{true, false} {
		cmd := exec.Command("/bin/sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		exits := make(chan supervisor.Exit, 1)
		w.exits[cmd.Process.Pid] = exits
		c, err := r.Adopt(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if !known {
			close(exits) // the supervisor is gone
		}
		if err := r.Signal(c, unix.SIGTERM); err != nil {
			t.Errorf("signal: %v", err)
		}
		want := supervisor.Unknown
		if known {
			_ = cmd.Wait()
			want = 143
			exits <- supervisor.Exit{PID: c.Pid, Code: want}
		}
		<-c.Done
		if code, _ := c.Status(); code != want {
			t.Errorf("code %d, want %d", code, want)
		}
		if err := r.Signal(c, unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("signal after the end: %v", err)
		}
		if !known {
			_ = cmd.Wait()
		}
	}
}
