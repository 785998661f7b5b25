package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func newExits() *exits { return &exits{watched: map[int]*Exit{}, life: 1} }

const nobody = 1 << 30 // no pid

func TestReportedBeforeWatched(t *testing.T) {
	x := newExits()
	if x.add(Exit{PID: nobody, Code: 7}, 0) {
		t.Error("what nobody watches is news")
	}
	if e := x.claim(nobody, nobody); e == nil || e.Code != 7 {
		t.Errorf("claimed %+v, want 7", e)
	}
	if x.add(Exit{PID: nobody, Code: 9}, 1) || x.watched[nobody].Code != 7 {
		t.Error("a second exit replaced the first")
	}
}

func TestWatchIsAboutTheLivingOne(t *testing.T) {
	x := newExits()
	x.add(Exit{PID: nobody, Code: 7}, 0) // an earlier process of the shim
	x.watch(nobody, nobody)
	if e := x.watched[nobody]; e != nil {
		t.Errorf("a process that is watched has ended with %+v, which was another", e)
	}
	if !x.add(Exit{PID: nobody, Code: 3}, 1) || x.watched[nobody].Code != 3 {
		t.Errorf("watched %+v, want 3", x.watched[nobody])
	}
}

// TestWatchAfterTheShimsDeath hears that a process is to be watched after it has been reaped here:
// its shim had said so and died.
func TestWatchAfterTheShimsDeath(t *testing.T) {
	x := newExits()
	x.add(Exit{PID: nobody, Code: 7}, 1)
	x.watch(nobody, nobody)
	if e := x.watched[nobody]; e == nil || e.Code != 7 {
		t.Errorf("watched %+v, want 7", e)
	}
	x.life++
	x.add(Exit{PID: nobody + 1, Code: 7}, 1)
	x.watch(nobody+1, nobody)
	if e := x.watched[nobody+1]; e != nil {
		t.Errorf("watched %+v, of an earlier shim", e)
	}
}

func TestClaim(t *testing.T) {
	x := newExits()
	if e := x.claim(nobody, nobody); e == nil || e.Code != Unknown || e.At.IsZero() {
		t.Errorf("a process that is gone: %+v", e)
	}
	cmd := exec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	x.add(Exit{PID: cmd.Process.Pid, Code: 7}, 1)
	if e := x.claim(cmd.Process.Pid, nobody); e != nil {
		t.Errorf("a living child has ended with %+v", e)
	}
	if !isAlive(cmd.Process.Pid) || isAlive(os.Getpid()) {
		t.Error("who lives as a child is not known")
	}
}

// TestClaimWhileItsParentLives claims a process whose parent has still to die of its shim's death.
func TestClaimWhileItsParentLives(t *testing.T) {
	parent := exec.Command("/bin/sh", "-c", "sleep 1000 & echo $!; wait")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		_ = parent.Process.Kill()
		_ = parent.Wait()
	}()
	x := newExits()
	if e := x.claim(pid, nobody); e != nil {
		t.Errorf("it has ended with %+v", e)
	}
	if !x.add(Exit{PID: pid, Code: 7}, 1) || x.claim(pid, nobody).Code != 7 {
		t.Errorf("then it ends with 7, and the claim says %+v", x.watched[pid])
	}
	x = newExits()
	if e := x.claim(pid, parent.Process.Pid); e == nil || e.Code != Unknown {
		t.Errorf("a process of the shim that asks has the pid: %+v, want that its end is not known", e)
	}
}

func TestLooseExitsAreBounded(t *testing.T) {
	x := newExits()
	for pid := range 3 * maxLoose {
		x.add(Exit{PID: nobody + pid}, 1)
	}
	if len(x.loose) != maxLoose {
		t.Errorf("%d exits are kept, want %d", len(x.loose), maxLoose)
	}
	if _, found := x.take(nobody + 3*maxLoose - 1); !found {
		t.Error("the youngest exit is lost")
	}
}

func TestDropOfAllWithAPrefix(t *testing.T) {
	k := &supervisor{kept: map[string]message{"a/x": {}, "a/y/z": {}, "ab": {}, "a": {}, "b/x": {}}}
	k.drop("a/")
	k.drop("b")
	if len(k.kept) != 3 {
		t.Errorf("kept %v", k.kept)
	}
	k.drop("b/x")
	if _, kept := k.kept["b/x"]; kept {
		t.Error("what was dropped is kept")
	}
}
