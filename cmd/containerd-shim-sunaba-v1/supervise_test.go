package main

import (
	"errors"
	"fmt"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/enginetest"
	"github.com/sunaba-project/sunaba/shim/stdio"
	"golang.org/x/sys/unix"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/shim/client"
)

// supervised is a directory with a supervisor and its shim.
type supervised struct {
	*pod
	shim int // pid
}

func newSupervised(t testing.TB, binary string) *supervised {
	t.Helper()
	k := &supervised{pod: startPod(t, binary, true)}
	k.connect(t)
	return k
}

// connect reaches the shim that there is now.
func (k *supervised) connect(t testing.TB) {
	t.Helper()
	old := k.Client
	k.Client = must(client.Connect(within(t), k.dir))(t)
	old.Close()
	k.shim = k.PID()
}

// kill ends the shim and reaches its successor. Nobody is refused meanwhile.
func (k *supervised) kill(t testing.TB) {
	t.Helper()
	before := k.shim
	check(t, syscall.Kill(k.shim, syscall.SIGKILL))
	<-k.Done()
	k.connect(t)
	if k.shim == before {
		t.Fatal("the dead shim answers")
	}
}

// quit ends shim and supervisor, which have no containers.
func (k *supervised) quit(t testing.TB) {
	t.Helper()
	shutDown(t, k.Client)
	eventually(t, "shim and supervisor end", func() bool { return len(processesIn(t, k.dir)) == 0 })
	if _, err := os.Stat(filepath.Join(k.dir, client.SocketName)); !os.IsNotExist(err) {
		t.Error("the shim left its socket")
	}
}

// TestCleanupEndsSupervisorAndShim leaves both to the end of the test, and a container with them.
func TestCleanupEndsSupervisorAndShim(t *testing.T) {
	k := newSupervised(t, "")
	k.container(enginetest.Program{Kind: enginetest.Sleep}).create(t).start(t)
}

func TestSupervisorStartsASuccessor(t *testing.T) {
	k := newSupervised(t, "")
	k.kill(t)
	k.kill(t)
	k.quit(t)
}

// finish ends a container and looks at what is left of it.
func (k *supervised) finish(t testing.TB, c *container) {
	t.Helper()
	c.delete(t)
	k.nothingRunsOf(t, c, "config.json", "exit.json", "rootfs")
}

// ends waits for a container's end with this code, finishes with it, and returns what is on record.
func (k *supervised) ends(t testing.TB, c *container, code uint32) client.Exit {
	t.Helper()
	waited := c.wait(t)
	k.finish(t, c)
	exit, known := client.ReadExit(c.path())
	if waited.Code != code || exit.Code != code || !known {
		t.Errorf("exit %+v, on record %+v, want %d", waited, exit, code)
	}
	return exit
}

// kills is ends for a container that is sent a signal.
func (k *supervised) kills(t testing.TB, c *container, sig syscall.Signal, code uint32) client.Exit {
	t.Helper()
	check(t, k.Kill(within(t), c.id, "", sig, false))
	return k.ends(t, c, code)
}

func (k *supervised) status(t testing.TB, c *container, want client.Status) client.State {
	t.Helper()
	state := must(k.State(within(t), c.id, ""))(t)
	if state.Status != want {
		t.Errorf("state %+v, want %s", state, want)
	}
	return state
}

func TestSuccessorHasCreatedContainers(t *testing.T) { testCreatedContainer(t, "runc") }

// TestSuccessorUnderCrun hides the second cgroup hierarchy that some machines have mounted beside
// the older ones: crun 1.8 takes it for the only one. So it runs in a process with mounts of its
// own.
func TestSuccessorUnderCrun(t *testing.T) {
	const inside = "SUNABA_TEST_PRIVATE_MOUNTS"
	if os.Getenv(inside) != "" {
		err := unix.Unmount("/sys/fs/cgroup/unified", unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			t.Fatal(err)
		}
		if err == nil { // crun leaves directories where the hierarchy was
			check(t, unix.Mount("tmpfs", "/sys/fs/cgroup/unified", "tmpfs", 0, ""))
		}
		testCreatedContainer(t, "crun")
		return
	}
	enginetest.NeedRoot(t)
	cmd := exec.Command(must(os.Executable())(t), "-test.run", "^TestSuccessorUnderCrun$")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func testCreatedContainer(t *testing.T, runtime string) {
	k := newSupervised(t, "")
	c := k.container(enginetest.Program{}).script("echo out; exit 7")
	c.req.Options.Binary = runtime
	c.create(t)
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
	if runtime == "crun" {
		c.delete(t)
		check(t, os.RemoveAll("/sys/fs/cgroup/unified"+enginetest.CgroupParent))
		k.nothingRunsOf(t, c, "config.json", "exit.json", "rootfs")
	} else {
		k.finish(t, c)
	}
	k.quit(t)
}

// TestSuccessorGoesOnWithTheLog counts in a container while shims die: no line may be doubled, torn
// or out of order, and none may be lost that was written while no shim read.
func TestSuccessorGoesOnWithTheLog(t *testing.T) {
	k := newSupervised(t, "")
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
	k := newSupervised(t, "")
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
	k := newSupervised(t, "")
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
	k.kills(t, c, syscall.SIGKILL, 137)
	k.quit(t)
}

// TestSuccessorHasTheInput writes to a container's input while shims die, and ends it: nobody must
// hold a copy of it then.
func TestSuccessorHasTheInput(t *testing.T) {
	k := newSupervised(t, "")
	c := k.container(enginetest.Program{Kind: enginetest.Cat})
	c.req.Stdin = filepath.Join(t.TempDir(), "in")
	check(t, unix.Mkfifo(c.req.Stdin, 0o600))
	c.create(t).start(t)
	in := must(os.OpenFile(c.req.Stdin, os.O_WRONLY, 0))(t)
	want := ""
	for _, line := range []string{"one", "two", "three"} {
		must(in.WriteString(line + "\n"))(t)
		want += "stdout F " + line + "\n"
		eventually(t, "the line is in the log", func() bool { return c.log(t) == want })
		k.kill(t)
	}
	check(t, in.Close())
	k.ends(t, c, 0)
	k.quit(t)
}

// TestSuccessorLetsAttach attaches before and after a death, and ends the input with the last
// attacher.
func TestSuccessorLetsAttach(t *testing.T) {
	k := newSupervised(t, "")
	c := k.container(enginetest.Program{Kind: enginetest.Cat})
	c.req.Stdin = stdio.Attachable
	c.create(t).start(t)
	want := ""
	for i, once := range []bool{false, false, true} {
		in := filepath.Join(t.TempDir(), "in")
		check(t, unix.Mkfifo(in, 0o600))
		w := must(os.OpenFile(in, os.O_RDWR, 0))(t)
		check(t, k.Attach(within(t), client.AttachRequest{ID: c.id, Stdin: in, Once: once}))
		must(fmt.Fprintln(w, "line", i))(t)
		want += fmt.Sprintf("stdout F line %d\n", i)
		eventually(t, "the line is in the log", func() bool { return c.log(t) == want })
		w.Close()
		if !once {
			k.kill(t)
		}
	}
	k.ends(t, c, 0)
	k.quit(t)
}

func TestSuccessorHasTheTerminal(t *testing.T) {
	k := newSupervised(t, "")
	c := k.container(enginetest.Program{}).script("trap 'echo size' WINCH; echo begin; while [ ! -e /tmp/end ]; do sleep 0.05; done; [ -t 0 ] && echo end; exit 5")
	c.spec.Process.Terminal = true
	c.req.Terminal, c.req.Stderr = true, ""
	c.create(t)
	k.kill(t)
	c.start(t)
	eventually(t, "it has begun", func() bool { return c.log(t) == "stdout F begin\n" })
	k.kill(t)
	check(t, k.ResizePty(within(t), c.id, "", 90, 30))
	eventually(t, "it learns of its size", func() bool { return c.log(t) == "stdout F begin\nstdout F size\n" })
	k.kill(t)
	check(t, os.WriteFile(filepath.Join(c.path(), "rootfs/tmp/end"), nil, 0o600))
	if exit := c.wait(t); exit.Code != 5 {
		t.Errorf("exit %+v", exit)
	}
	if got := c.log(t); got != "stdout F begin\nstdout F size\nstdout F end\n" {
		t.Errorf("log %q", got)
	}
	k.finish(t, c)
	k.quit(t)
}

// TestSuccessorEndsExecs has a command run in a container, with a child of its own, when the shim
// dies.
func TestSuccessorEndsExecs(t *testing.T) {
	k := newSupervised(t, "")
	c := k.container(enginetest.Program{Kind: enginetest.Sleep}).create(t).start(t)
	check(t, k.Exec(within(t), client.ExecRequest{ID: c.id, ExecID: "e", Process: &specs.Process{
		Args: []string{"/bin/sh", "-c", "sleep 1000 & sleep 1000; true"}, Cwd: "/", Env: []string{"PATH=/bin"},
	}}))
	must(k.Start(within(t), c.id, "e"))(t)
	eventually(t, "the command and its child run", func() bool { return len(must(k.Pids(within(t), c.id))(t)) == 4 })
	left := filepath.Join(k.dir, "runc-process123") // as of a shim that dies while a runtime executes something
	check(t, os.WriteFile(left, nil, 0o600))
	k.kill(t)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("temporary file of the dead shim: %v", err)
	}
	eventually(t, "they are gone", func() bool { return len(must(k.Pids(within(t), c.id))(t)) == 1 })
	if _, err := k.State(within(t), c.id, "e"); !errdefs.IsNotFound(err) {
		t.Errorf("state of the command: %v", err)
	}
	k.status(t, c, client.StatusRunning)
	k.kills(t, c, syscall.SIGKILL, 137)
	k.quit(t)
}

func TestSuccessorHasThePauseProcess(t *testing.T) {
	k := newSupervised(t, "")
	pause := k.pause()
	pid := must(pause.tryCreate(t))(t)
	pause.start(t)
	k.kill(t)
	k.kill(t)
	if state := k.status(t, pause, client.StatusRunning); state.PID != pid {
		t.Errorf("pid %d, was %d", state.PID, pid)
	}
	check(t, k.Kill(within(t), pause.id, "", syscall.SIGTERM, false))
	if exit := pause.wait(t); exit.Code != 143 {
		t.Errorf("exit %+v", exit)
	}
	pause.delete(t)
	k.quit(t)
}

// TestShimOutlivesItsSupervisor kills the supervisor: the shim goes on without.
func TestShimOutlivesItsSupervisor(t *testing.T) {
	k := newSupervised(t, "")
	before := k.container(enginetest.Program{Kind: enginetest.Sleep}).create(t).start(t)
	supervisor := must(strconv.Atoi(string(must(os.ReadFile(filepath.Join(k.dir, client.PidName)))(t))))(t)
	check(t, syscall.Kill(supervisor, syscall.SIGKILL))
	after := k.container(enginetest.Program{}).script("echo out; exit 7").create(t).start(t)
	k.ends(t, after, 7)
	k.kills(t, before, syscall.SIGKILL, 137)
	k.quit(t)
}

// TestDeathAtAnyMoment kills the shim at some moment of a container's short life. What was never
// answered is not there and has left nothing; all else has a true exit.
func TestDeathAtAnyMoment(t *testing.T) {
	t.Parallel() // with the others that take long
	k := newSupervised(t, "")
	for i := range 24 {
		c := k.container(enginetest.Program{}).script("echo out; exit 7")
		if i%2 == 0 {
			c.spec.Annotations[annotation.OneStep] = "true"
			c.spec.Process.OOMScoreAdj = new(int)
		}
		c.prepare(t)
		first := k.Client
		over := make(chan error, 1)
		go func() {
			_, err := first.Launch(within(t), c.req)
			over <- err
		}()
		time.Sleep(time.Duration(i) * 5 * time.Millisecond)
		k.kill(t)
		answer := <-over
		state, err := k.State(within(t), c.id, "")
		switch {
		case errdefs.IsNotFound(err):
			if answer == nil {
				t.Errorf("death %d: the container was answered and is gone", i)
			}
			if exit, ended := client.ReadExit(c.path()); ended && exit.Code != 137 {
				t.Errorf("death %d: exit %+v", i, exit)
			}
			os.Remove(filepath.Join(c.path(), "exit.json"))
			os.Mkdir(filepath.Join(c.path(), "rootfs"), 0o755) // unless it had come so far
			k.nothingRunsOf(t, c, "config.json", "rootfs")
			continue
		case err != nil:
			t.Fatal(err)
		case state.Status == client.StatusCreated:
			c.start(t)
		}
		exit := c.wait(t)
		cut := answer != nil && exit.Code == 1 && c.log(t) == "" // the runtime's start was, and its process ended without having been the program
		if exit.Code != 7 && !cut {
			t.Errorf("death %d: exit %+v, answer %v", i, exit, answer)
		}
		k.finish(t, c)
	}
	k.quit(t)
}
