package main

import (
	"github.com/sunaba-project/sunaba/shim/enginetest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/client"
)

// kept is a directory with a keeper and its shim.
type kept struct {
	*pod
	shim int // pid
}

func newKept(t testing.TB, binary string) *kept {
	t.Helper()
	k := &kept{pod: startPod(t, binary, true)}
	k.connect(t)
	return k
}

// connect reaches the shim that there is now.
func (k *kept) connect(t testing.TB) {
	t.Helper()
	old := k.Client
	k.Client = must(client.Connect(within(t), k.dir))(t)
	old.Close()
	k.shim = k.PID()
}

// kill ends the shim and reaches its successor. Nobody is refused meanwhile.
func (k *kept) kill(t testing.TB) {
	t.Helper()
	before := k.shim
	check(t, syscall.Kill(k.shim, syscall.SIGKILL))
	<-k.Done()
	k.connect(t)
	if k.shim == before {
		t.Fatal("the dead shim answers")
	}
}

// quit ends shim and keeper, which have no containers.
func (k *kept) quit(t testing.TB) {
	t.Helper()
	check(t, k.Shutdown(within(t)))
	eventually(t, "shim and keeper end", func() bool { return len(processesIn(t, k.dir)) == 0 })
	if _, err := os.Stat(filepath.Join(k.dir, client.SocketName)); !os.IsNotExist(err) {
		t.Error("the shim left its socket")
	}
}

func TestKeeperStartsASuccessor(t *testing.T) {
	k := newKept(t, "")
	k.kill(t)
	k.kill(t)
	k.quit(t)
}

// finish ends a container and looks at what is left of it.
func (k *kept) finish(t testing.TB, c *container) {
	t.Helper()
	c.delete(t)
	k.nothingRunsOf(t, c, "config.json", "exit.json", "rootfs")
}

func (k *kept) status(t testing.TB, c *container, want client.Status) client.State {
	t.Helper()
	state := must(k.State(within(t), c.id, ""))(t)
	if state.Status != want {
		t.Errorf("state %+v, want %s", state, want)
	}
	return state
}

func TestSuccessorHasCreatedContainers(t *testing.T) {
	k := newKept(t, "")
	c := k.container(enginetest.Program{}).script("echo out; exit 7").create(t)
	pid := k.status(t, c, client.StatusCreated).PID
	k.kill(t)
	if again := k.status(t, c, client.StatusCreated).PID; again != pid {
		t.Errorf("pid %d, was %d", again, pid)
	}
	c.start(t)
	if exit := c.wait(t); exit.Code != 7 {
		t.Errorf("exit %+v", exit)
	}
	if got := c.log(t); got != "stdout F out\n" {
		t.Errorf("log %q", got)
	}
	k.kill(t) // its exit is on record
	if exit := c.wait(t); exit.Code != 7 {
		t.Errorf("exit after another death %+v", exit)
	}
	k.finish(t, c)
	k.quit(t)
}

// TestSuccessorGoesOnWithTheLog counts in a container while shims die: no line may be doubled, torn or out of order, and none may be
// lost that was written while no shim read.
func TestSuccessorGoesOnWithTheLog(t *testing.T) {
	k := newKept(t, "")
	c := k.container(enginetest.Program{}).script("i=0; while [ ! -e /tmp/enough ]; do echo $i; i=$((i+1)); [ $((i % 500)) != 0 ] || sleep 0.01; done; echo last; exit 3").
		create(t).start(t)
	lines := func() int { return strings.Count(string(must(os.ReadFile(c.logFile()))(t)), "\n") }
	for range 3 {
		more := lines() + 2000
		eventually(t, "the log grows", func() bool { return lines() > more })
		k.kill(t)
		k.status(t, c, client.StatusRunning)
	}
	more := lines() + 2000
	eventually(t, "the log grows", func() bool { return lines() > more })
	check(t, os.WriteFile(filepath.Join(c.path(), "rootfs/tmp/enough"), nil, 0o600))
	if exit := c.wait(t); exit.Code != 3 {
		t.Errorf("exit %+v", exit)
	}
	next, gaps := 0, 0
	whole := strings.Split(strings.TrimSuffix(c.log(t), "\n"), "\n")
	for i, line := range whole[:len(whole)-1] {
		text, ok := strings.CutPrefix(line, "stdout F ")
		if !ok {
			t.Fatalf("line %q", line)
		}
		n, err := strconv.Atoi(text)
		switch {
		case err == nil && n == next:
			next++
		case gaps < 3: // what a dead shim had read; the first line after it may lack its begin
			gaps++
			_, follows := strings.CutPrefix(whole[i+1], "stdout F ")
			next = must(strconv.Atoi(strings.TrimPrefix(whole[i+1], "stdout F ")))(t)
			if !follows || n > next {
				t.Fatalf("line %q after %d, before %q", line, next, whole[i+1])
			}
		default:
			t.Fatalf("line %q, want %d", line, next)
		}
	}
	if last := whole[len(whole)-1]; last != "stdout F last" {
		t.Errorf("last line %q", last)
	}
	k.finish(t, c)
	k.quit(t)
}

// TestExitWhileThereIsNoShim has a container end while its shim cannot notice, and the shim die.
func TestExitWhileThereIsNoShim(t *testing.T) {
	k := newKept(t, "")
	c := k.container(enginetest.Program{Kind: enginetest.Sleep}).create(t).start(t)
	pid := k.status(t, c, client.StatusRunning).PID
	check(t, syscall.Kill(k.shim, syscall.SIGSTOP))
	check(t, syscall.Kill(pid, syscall.SIGKILL))
	k.kill(t)
	if exit := c.wait(t); exit.Code != 137 || time.Since(exit.At) > patience {
		t.Errorf("exit %+v", exit)
	}
	k.finish(t, c)
	k.quit(t)
}

func TestSuccessorKillsAndPauses(t *testing.T) {
	k := newKept(t, "")
	c := k.container(enginetest.Program{Kind: enginetest.Sleep}).create(t).start(t)
	began := must(k.Details(within(t), c.id))(t).StartedAt
	check(t, k.Pause(within(t), c.id))
	k.kill(t)
	k.status(t, c, client.StatusPaused)
	check(t, k.Resume(within(t), c.id))
	k.kill(t)
	k.status(t, c, client.StatusRunning)
	if d := must(k.Details(within(t), c.id))(t); !d.StartedAt.Equal(began) || began.IsZero() {
		t.Errorf("started at %v, was %v", d.StartedAt, began)
	}
	check(t, k.Kill(within(t), c.id, "", syscall.SIGUSR2, false)) // init of a PID namespace ignores it
	k.kill(t)
	if d := must(k.Details(within(t), c.id))(t); !slices.Equal(d.Told, []int{int(syscall.SIGUSR2)}) {
		t.Errorf("told %v", d.Told)
	}
	check(t, k.Kill(within(t), c.id, "", syscall.SIGKILL, false))
	if exit := c.wait(t); exit.Code != 137 {
		t.Errorf("exit %+v", exit)
	}
	k.finish(t, c)
	k.quit(t)
}
