package cgroup

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTheRootIsNobodysGroup(t *testing.T) {
	for _, path := range []string{"", "/"} {
		if _, err := Open(path); err == nil {
			t.Errorf("%q is taken", path)
		}
	}
}

// testGroup is a group of the test's own, which it need not remove.
func testGroup(t *testing.T) *Group {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root")
	}
	parent := fmt.Sprintf("/sunaba-cgrouptest-%d", os.Getpid())
	all, err := Open(parent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := all.Remove(); err != nil {
			t.Error(err)
		}
	})
	g, err := Open(parent + "/inner")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// startIn starts a command and moves it into the group. It returns the command's input, whose first
// line or end tells it that it is there.
func startIn(t *testing.T, g *Group, cmd *exec.Cmd) io.WriteCloser {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Join(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return in
}

func TestLifeOfAGroup(t *testing.T) {
	g := testGroup(t)
	parent, err := Open(filepath.Dir(g.Path()))
	if err != nil {
		t.Fatal(err)
	}
	if g.Exists() {
		t.Error("a group that was not created exists")
	}
	if pids, err := g.Pids(); err != nil || len(pids) != 0 {
		t.Errorf("processes of a group that is not there: %v, %v", pids, err)
	}
	for range 2 {
		if err := g.Create(); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/bin/sh", "-c", "trap '' TERM; read in_the_group; sleep 1000 & echo ready; wait; sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in := startIn(t, g, cmd)
	if _, err := fmt.Fprintln(in, "go"); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	if of, err := Of(cmd.Process.Pid); err != nil || of != g.Path() {
		t.Errorf("process is in %q, %v", of, err)
	}
	if !g.Exists() {
		t.Error("a group with a process does not exist")
	}
	if pids, err := parent.Pids(); err != nil || len(pids) == 0 {
		t.Errorf("the parent's processes: %v, %v", pids, err)
	}
	if n, err := g.Signal(unix.SIGTERM); err != nil || n == 0 {
		t.Errorf("signalled %d, %v", n, err)
	}
	if err := g.Freeze(); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove(); err == nil {
		t.Error("a group with processes was removed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := g.Kill(ctx); err != nil { // frozen, and deaf to TERM
		t.Fatal(err)
	}
	<-ended
	for range 2 {
		if err := g.Remove(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKillOfWhatForks: some are started while others are killed.
func TestKillOfWhatForks(t *testing.T) {
	g := testGroup(t)
	if err := g.Create(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "read _; fork() { while :; do (sleep 1000 & sleep 0.01) & sleep 0.01; done; }; fork & fork & fork & wait")
	startIn(t, g, cmd).Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for pids := []int{}; len(pids) < 50; time.Sleep(10 * time.Millisecond) {
		var err error
		if pids, err = g.Pids(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := g.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	<-ended
	if pids, err := g.Pids(); err != nil || len(pids) > 0 {
		t.Errorf("processes %v are left, %v", pids, err)
	}
}
