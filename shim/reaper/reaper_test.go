package reaper

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/shared/supervisor"
)

func newReaper(t *testing.T) *Reaper {
	t.Helper()
	r, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func wait(t *testing.T, c *Child) int {
	t.Helper()
	select {
	case <-c.Done:
	case <-time.After(time.Minute):
		t.Fatalf("child %d is not reaped", c.Pid)
	}
	code, at := c.Status()
	if at.IsZero() {
		t.Error("exit without a time")
	}
	return code
}

func TestStatus(t *testing.T) {
	r := newReaper(t)
	for script, want := range map[string]int{
		"exit 0":        0,
		"exit 7":        7,
		"exit 255":      255,
		"kill -TERM $$": 128 + 15,
		"kill -KILL $$": 128 + 9,
	} {
		cmd := exec.Command("/bin/sh", "-c", script)
		c, err := r.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		if got := wait(t, c); got != want {
			t.Errorf("%s: code %d, want %d", script, got, want)
		}
		if err := r.Signal(c, unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("signal to a reaped child: %v", err)
		}
		cmd.Process.Release()
	}
}

func TestStartError(t *testing.T) {
	r := newReaper(t)
	if _, err := r.Start(exec.Command("/nowhere/program")); err == nil {
		t.Error("no error")
	}
}

// orphan starts a program through a shell that leaves it behind, and returns its pid once the shell
// has ended.
func orphan(t *testing.T, r *Reaper, script string) int {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("/bin/sh", "-c", "( "+script+" ) >/dev/null & echo $!")
	cmd.Stdout = &out
	m := Monitor{r}
	exits, err := m.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if status, err := m.Wait(cmd, exits); err != nil || status != 0 {
		t.Fatalf("shell: %d, %v", status, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestWatch(t *testing.T) {
	r := newReaper(t)
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() { // who waits at the gate goes on
		t.Helper()
		if w, err := os.OpenFile(gate, os.O_WRONLY, 0); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
	}
	t.Run("alive", func(t *testing.T) {
		c := r.Watch(orphan(t, r, "read x <"+gate+"; exit 5"))
		if same := r.Watch(c.Pid); same != c {
			t.Error("a second watch gives another child")
		}
		open()
		if got := wait(t, c); got != 5 {
			t.Errorf("code %d, want 5", got)
		}
	})
	t.Run("reaped before", func(t *testing.T) {
		pid := orphan(t, r, "read x <"+gate+"; exit 6") // later than its parent, which might reap it itself
		open()
		deadline := time.Now().Add(time.Minute)
		for supervisor.IsChild(pid) && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if got := wait(t, r.Watch(pid)); got != 6 {
			t.Errorf("code %d, want 6", got)
		}
	})
	t.Run("nobody", func(t *testing.T) {
		if got := wait(t, r.Watch(1)); got != 255 {
			t.Errorf("code %d, want 255", got)
		}
	})
}

func TestUnclaimedAreBounded(t *testing.T) {
	r := &Reaper{children: make(map[int]*Child)}
	for i := range 3 * keepUnclaimed {
		r.deliver(exit{pid: 1 + i})
	}
	if len(r.unclaimed) != keepUnclaimed {
		t.Errorf("%d exits are kept, want %d", len(r.unclaimed), keepUnclaimed)
	}
	if _, found := r.take(3 * keepUnclaimed); !found {
		t.Error("the youngest exit is lost")
	}
	if _, found := r.take(1); found {
		t.Error("the oldest exit is kept")
	}
}

func TestManyChildrenLoseNoExit(t *testing.T) {
	r := newReaper(t)
	var children []*Child
	for i := range 100 {
		cmd := exec.Command("/bin/sh", "-c", "exit "+strconv.Itoa(i))
		c, err := r.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Process.Release()
		children = append(children, c)
	}
	for i, c := range children {
		if got := wait(t, c); got != i {
			t.Errorf("child %d: code %d", i, got)
		}
	}
}

func TestStartLocked(t *testing.T) {
	r := newReaper(t)
	m := Monitor{r}
	cmd := exec.Command("/bin/sh", "-c", "exit 3")
	exits, err := m.StartLocked(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if status, err := m.Wait(cmd, exits); err != nil || status != 3 {
		t.Errorf("status %d, %v", status, err)
	}
}
