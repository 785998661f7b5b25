package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/enginetest"
)

func TestLifeOfAContainer(t *testing.T) {
	p := newPod(t, "")
	c := p.container(enginetest.Program{}).script("echo out; echo err >&2; exit 7")
	c.create(t)
	state := must(p.State(within(t), c.id, ""))(t)
	if state.Status != client.StatusCreated || state.PID <= 0 {
		t.Errorf("state after create: %+v", state)
	}
	if _, ended := client.ReadExit(c.path()); ended {
		t.Error("there is an exit before the start")
	}
	c.start(t)
	exit := c.wait(t)
	if exit.Code != 7 || time.Since(exit.At) > patience {
		t.Errorf("exit %+v", exit)
	}
	kept, ok := client.ReadExit(c.path())
	if !ok || kept.Code != 7 || !kept.At.Equal(exit.At) || kept.OOMKilled {
		t.Errorf("kept exit %+v, %v; announced %+v", kept, ok, exit)
	}
	if got := c.log(t); got != "stdout F out\nstderr F err\n" && got != "stderr F err\nstdout F out\n" {
		t.Errorf("log %q", got)
	}
	if state := must(p.State(within(t), c.id, ""))(t); state.Status != client.StatusStopped || state.Exit.Code != 7 {
		t.Errorf("state after the end: %+v", state)
	}
	if d := must(p.Details(within(t), c.id))(t); d.Exit == nil || d.Exit.Code != 7 || d.PID != state.PID {
		t.Errorf("details %+v", d)
	}
	if again := c.wait(t); again != exit {
		t.Errorf("second wait %+v, first %+v", again, exit)
	}
	if deleted := c.delete(t); deleted.Code != 7 || !deleted.At.Equal(exit.At) {
		t.Errorf("delete %+v", deleted)
	}
	p.nothingRunsOf(t, c, "config.json", "exit.json", "rootfs")
	for name, err := range map[string]error{
		"state":  second(p.State(within(t), c.id, "")),
		"start":  second(p.Start(within(t), c.id, "")),
		"wait":   second(p.Wait(within(t), c.id, "")),
		"delete": second(p.Delete(within(t), c.id, "")),
		"kill":   p.Kill(within(t), c.id, "", syscall.SIGTERM, false),
		"reopen": p.ReopenLog(within(t), c.id),
	} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("%s of a deleted container: %v, want not found", name, err)
		}
	}
	shutDown(t, p.Client)
	ended(t, p)
	if _, err := os.Stat(filepath.Join(p.dir, client.SocketName)); !os.IsNotExist(err) {
		t.Error("the shim left its socket")
	}
}

func second[T any](_ T, err error) error { return err }

func ended(t testing.TB, p *pod) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(patience):
		t.Fatal("the shim does not end")
	}
}

// nothingRunsOf checks that a deleted container left only what its bundle's reader needs.
func (p *pod) nothingRunsOf(t testing.TB, c *container, left ...string) {
	t.Helper()
	var names []string
	for _, e := range must(os.ReadDir(c.path()))(t) {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, left) {
		t.Errorf("bundle holds %q", names)
	}
	for _, process := range enginetest.ProcessesOf(c.id) {
		t.Errorf("process left: %s", process)
	}
	if entries := must(os.ReadDir(filepath.Join(c.path(), "rootfs")))(t); len(entries) > 0 {
		t.Error("the root is still mounted")
	}
	if left := must(filepath.Glob("/sys/fs/cgroup/*" + enginetest.CgroupParent + "/" + c.id))(t); len(left) > 0 {
		t.Errorf("cgroups left: %v", left)
	}
}

func TestShutdownWithContainersDoesNothing(t *testing.T) {
	p := newPod(t, "")
	c := p.container(enginetest.Program{Kind: enginetest.Sleep}).create(t).start(t)
	check(t, p.Shutdown(within(t)))
	check(t, syscall.Kill(p.PID(), syscall.SIGTERM))
	if state := must(p.State(within(t), c.id, ""))(t); state.Status != client.StatusRunning {
		t.Errorf("state %+v", state)
	}
	check(t, p.Kill(within(t), c.id, "", syscall.SIGKILL, false))
	if exit := c.wait(t); exit.Code != 137 {
		t.Errorf("exit %+v", exit)
	}
	c.delete(t)
	check(t, syscall.Kill(p.PID(), syscall.SIGTERM))
	ended(t, p)
}

func TestStateMachine(t *testing.T) {
	p := newPod(t, "")
	c := p.container(enginetest.Program{Kind: enginetest.Sleep}).create(t)
	if _, err := c.tryCreate(t); !errdefs.IsAlreadyExists(err) {
		t.Errorf("create twice: %v", err)
	}
	if err := p.Pause(within(t), c.id); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("pause before start: %v", err)
	}
	c.start(t)
	if _, err := p.Start(within(t), c.id, ""); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("start twice: %v", err)
	}
	if _, err := p.Delete(within(t), c.id, ""); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("delete of a running container: %v", err)
	}
	if err := p.Resume(within(t), c.id); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("resume of a running container: %v", err)
	}
	check(t, p.Pause(within(t), c.id))
	if state := must(p.State(within(t), c.id, ""))(t); state.Status != client.StatusPaused {
		t.Errorf("state %+v", state)
	}
	if err := p.Exec(within(t), client.ExecRequest{ID: c.id, ExecID: "x", Process: c.spec.Process}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("exec in a paused container: %v", err)
	}
	check(t, p.Resume(within(t), c.id))
	check(t, p.Pause(within(t), c.id))
	check(t, p.Kill(within(t), c.id, "", syscall.SIGKILL, false)) // frozen processes die too
	if exit := c.wait(t); exit.Code != 137 {
		t.Errorf("exit %+v", exit)
	}
	if err := p.Kill(within(t), c.id, "", syscall.SIGKILL, false); !errdefs.IsNotFound(err) {
		t.Errorf("kill after the end: %v", err)
	}
	c.delete(t)
}

func TestDeleteOfACreatedContainer(t *testing.T) {
	p := newPod(t, "")
	c := p.container(enginetest.Program{Kind: enginetest.Sleep}).create(t)
	if exit := c.delete(t); exit.Code != 137 {
		t.Errorf("exit %+v", exit)
	}
	p.nothingRunsOf(t, c, "config.json", "rootfs") // it never ran, so it did not end
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	p := newPod(t, "")
	for name, change := range map[string]func(*container){
		"missing program": func(c *container) { c.spec.Process.Args = []string{"/nothing"} },
		"bad log":         func(c *container) { c.req.Stdout = "cri:///nowhere/at/all/0.log" },
		"no engine":       func(c *container) { c.spec.Process = nil },
		"bad runtime":     func(c *container) { c.req.Options.Binary = "/nowhere/runc" },
	} {
		t.Run(name, func(t *testing.T) {
			c := p.container(enginetest.Program{Kind: enginetest.Sleep})
			change(c)
			before := enginetest.Before(t, enginetest.WriteBundle(t, p.dir, c.id, c.spec), c.id)
			if _, err := c.tryCreate(t); err == nil {
				t.Error("no error")
			} else {
				t.Log(err)
			}
			os.Remove(filepath.Join(c.path(), "rootfs"))
			before.Check(t)
			if _, err := p.State(within(t), c.id, ""); !errdefs.IsNotFound(err) {
				t.Errorf("state: %v", err)
			}
		})
	}
}

func TestDaemonMayBeGone(t *testing.T) {
	p := newPod(t, "")
	running := p.container(enginetest.Program{}).script("i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done; sleep 0.3; echo end; exit 9").create(t).start(t)
	check(t, p.Close())
	ended(t, p)
	eventually(t, "exit is written down", func() bool {
		exit, ok := client.ReadExit(running.path())
		return ok && exit.Code == 9
	})
	kept, _ := client.ReadExit(running.path())
	var want strings.Builder
	for i := range 300 {
		fmt.Fprintf(&want, "stdout F line %d\n", i)
	}
	if got := running.log(t); got != want.String()+"stdout F end\n" {
		t.Errorf("log has %d bytes, want %d", len(got), want.Len()+len("stdout F end\n"))
	}
	again, err := client.Connect(within(t), p.dir)
	if err != nil {
		t.Fatal(err)
	}
	if again.PID() != p.PID() {
		t.Errorf("shim %d, before %d", again.PID(), p.PID())
	}
	p.Client = again
	if exit := running.wait(t); exit.Code != 9 || !exit.At.Equal(kept.At) {
		t.Errorf("exit %+v, kept %+v", exit, kept)
	}
	running.delete(t)
}

func TestConnectWithoutShim(t *testing.T) {
	if _, err := client.Connect(within(t), t.TempDir()); !errdefs.IsNotFound(err) {
		t.Errorf("connect: %v, want not found", err)
	}
	p := newPod(t, "")
	check(t, syscall.Kill(p.PID(), syscall.SIGKILL))
	ended(t, p)
	if _, err := client.Connect(within(t), p.dir); !errdefs.IsNotFound(err) {
		t.Errorf("connect to a dead shim: %v, want not found", err)
	}
	if _, err := p.State(within(t), "x", ""); !errdefs.IsUnavailable(err) {
		t.Errorf("call to a dead shim: %v, want unavailable", err)
	}
}

func TestStartTwiceInOneDirectory(t *testing.T) {
	p := newPod(t, "")
	o := client.StartOptions{Binary: p.binary, Namespace: "k8s.io", ID: p.id, Dir: p.dir}
	if _, err := client.Start(within(t), o); !errdefs.IsAlreadyExists(err) {
		t.Errorf("second shim: %v, want already exists", err)
	}
	must(p.State(within(t), "x", ""))
	check(t, syscall.Kill(p.PID(), syscall.SIGKILL))
	ended(t, p)
	p.Client = must(client.Start(within(t), o))(t) // the dead one's socket is in nobody's way
	c := p.container(enginetest.Program{Kind: enginetest.Exit, Code: 3}).create(t).start(t)
	if exit := c.wait(t); exit.Code != 3 {
		t.Errorf("exit %+v", exit)
	}
}

func TestFailedPlacementLeavesNoShim(t *testing.T) {
	dir := t.TempDir()
	placed := 0
	_, err := client.Start(within(t), client.StartOptions{
		Binary: must(os.Executable())(t), Namespace: "n", ID: "x", Dir: dir,
		Place: func(pid int) error { placed = pid; return os.ErrPermission },
	})
	if err == nil || placed == 0 {
		t.Fatalf("error %v, placed %d", err, placed)
	}
	if err := syscall.Kill(placed, 0); err != syscall.ESRCH {
		t.Errorf("the shim lives: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, client.SocketName)); !os.IsNotExist(err) {
		t.Error("its socket is left")
	}
}

func TestKilledShimIsCleanedUp(t *testing.T) {
	p := newPod(t, "")
	running := p.container(enginetest.Program{Kind: enginetest.Sleep}).create(t).start(t)
	created := p.container(enginetest.Program{Kind: enginetest.Sleep}).create(t)
	over := p.container(enginetest.Program{Kind: enginetest.Exit, Code: 5}).create(t).start(t)
	over.wait(t)
	check(t, syscall.Kill(p.PID(), syscall.SIGKILL))
	ended(t, p)
	if len(enginetest.ProcessesOf(running.id)) == 0 {
		t.Fatal("the container went with its shim: there is nothing to test")
	}
	for range 2 {
		check(t, client.Cleanup(within(t), p.binary, "k8s.io", p.dir, p.id))
	}
	for _, c := range []*container{running, created, over} {
		// Killed orphans are reaped by whoever is process 1 here.
		eventually(t, "no process is left", func() bool { return len(enginetest.ProcessesOf(c.id)) == 0 })
		if left := must(filepath.Glob("/sys/fs/cgroup/*" + enginetest.CgroupParent + "/" + c.id))(t); len(left) > 0 {
			t.Errorf("cgroups left: %v", left)
		}
	}
	if exit, ok := client.ReadExit(over.path()); !ok || exit.Code != 5 {
		t.Errorf("kept exit %+v, %v", exit, ok)
	}
	p.nothingLeft(t)
}

// TestShimKilledAtAnyMoment kills shims between the first step of a create and the last of a
// delete.
func TestShimKilledAtAnyMoment(t *testing.T) {
	t.Parallel() // with the others that take long
	rounds := 20
	if testing.Short() {
		rounds = 8
	}
	for i := range rounds {
		p := newPod(t, "")
		c := p.container(enginetest.Program{}).script("sleep 0.01")
		c.prepare(t)
		go func() { // until the shim is gone
			if _, err := c.Create(context.Background(), c.req); err == nil {
				_, _ = c.Start(context.Background(), c.id, "")
				_, _ = c.Wait(context.Background(), c.id, "")
				_, _ = c.Delete(context.Background(), c.id, "")
			}
		}()
		time.Sleep(time.Duration(i) * 100 * time.Millisecond / time.Duration(rounds))
		check(t, syscall.Kill(p.PID(), syscall.SIGKILL))
		ended(t, p)
		check(t, client.Cleanup(within(t), p.binary, "k8s.io", p.dir, p.id))
		eventually(t, "no process is left", func() bool { return len(enginetest.ProcessesOf(c.id)) == 0 })
		if left := must(filepath.Glob("/sys/fs/cgroup/*" + enginetest.CgroupParent + "/" + c.id))(t); len(left) > 0 {
			t.Errorf("round %d: cgroups left: %v", i, left)
		}
		p.nothingLeft(t)
	}
}

func TestHangingShimIsCleanedUp(t *testing.T) {
	p := newPod(t, "")
	p.container(enginetest.Program{Kind: enginetest.Sleep}).create(t).start(t)
	check(t, syscall.Kill(p.PID(), syscall.SIGSTOP))
	check(t, client.Cleanup(within(t), p.binary, "k8s.io", p.dir, p.id))
	ended(t, p)
	p.nothingLeft(t)
}

func TestManyShortContainersLoseNoExit(t *testing.T) {
	t.Parallel() // with the others that take long
	n := 200
	if testing.Short() {
		n = 20
	}
	p := newPod(t, "")
	for i := range n {
		c := p.container(enginetest.Program{}).script(fmt.Sprintf("echo %d; exit %d", i, i%256)).create(t).start(t)
		if exit := c.wait(t); exit.Code != uint32(i%256) {
			t.Fatalf("container %d: exit %+v", i, exit)
		}
		if kept, ok := client.ReadExit(c.path()); !ok || kept.Code != uint32(i%256) {
			t.Fatalf("container %d: kept exit %+v, %v", i, kept, ok)
		}
		if got, want := c.log(t), fmt.Sprintf("stdout F %d\n", i); got != want {
			t.Fatalf("container %d: log %q", i, got)
		}
		c.delete(t)
	}
}

func TestOutOfMemoryIsWrittenDown(t *testing.T) {
	p := newPod(t, "")
	c := p.container(enginetest.Program{}).script("x=a; while true; do x=$x$x; done")
	limit := int64(16 << 20)
	c.spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit, Swap: &limit}}
	c.create(t).start(t)
	if exit := c.wait(t); exit.Code != 137 {
		t.Errorf("exit %+v", exit)
	}
	if kept, ok := client.ReadExit(c.path()); !ok || !kept.OOMKilled {
		t.Errorf("kept exit %+v, %v", kept, ok)
	}
	c.delete(t)
}

func TestReopenLog(t *testing.T) {
	p := newPod(t, "")
	c := p.container(enginetest.Program{Kind: enginetest.Cat})
	c.req.Stdin = filepath.Join(t.TempDir(), "in")
	check(t, unix.Mkfifo(c.req.Stdin, 0o600))
	c.create(t).start(t)
	in := must(os.OpenFile(c.req.Stdin, os.O_WRONLY, 0))(t)
	defer in.Close()
	fmt.Fprintln(in, "before")
	eventually(t, "first line", func() bool { return c.log(t) == "stdout F before\n" })
	rotated := c.logFile() + ".1"
	check(t, os.Rename(c.logFile(), rotated))
	check(t, p.ReopenLog(within(t), c.id))
	fmt.Fprintln(in, "after")
	eventually(t, "second line", func() bool { return c.log(t) == "stdout F after\n" })
	check(t, p.CloseIO(within(t), c.id, ""))
	if exit := c.wait(t); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	check(t, os.Remove(c.logFile()))
	if err := p.ReopenLog(within(t), c.id); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("reopen after the end: %v", err)
	}
	if _, err := os.Stat(c.logFile()); !os.IsNotExist(err) {
		t.Error("a refused reopen made a file")
	}
	c.delete(t)
}

// pause is a request for the process that holds a process namespace which the pod's containers
// share.
func (p *pod) pause() *container {
	pause := p.container(enginetest.Program{})
	pause.spec = &specs.Spec{
		Version:     "1.0.2",
		Annotations: annotation.Facts{Sandbox: true, SandboxID: p.id}.Annotations(),
		Linux: &specs.Linux{CgroupsPath: enginetest.CgroupParent + "/" + pause.id, Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace},
			{Type: specs.NetworkNamespace, Path: "/proc/self/ns/net"},
			{Type: specs.UTSNamespace, Path: "/proc/self/ns/uts"},
		}},
	}
	pause.req.Stdout, pause.req.Stderr = "", ""
	return pause
}

func TestSharedPidNamespace(t *testing.T) {
	p := newPod(t, "")
	pause := p.pause()
	pid := must(pause.tryCreate(t))(t)
	pause.start(t)
	var status string
	eventually(t, "pause process gives up its privileges", func() bool {
		status = string(must(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t))
		return strings.Contains(status, "Uid:\t65535\t65535\t65535\t65535") // its last step
	})
	for _, want := range []string{"CapBnd:\t0000000000000000", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(status, want) {
			t.Errorf("pause process: no %q in its status", want)
		}
	}
	if groups := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)))(t)); !strings.Contains(groups, pause.id) {
		t.Errorf("pause process is in %s", groups)
	}

	c := p.container(enginetest.Program{}).script("(sleep 1000 & ); echo $$; exit 4") // the orphan is the pause process's
	for i, ns := range c.spec.Linux.Namespaces {
		if ns.Type == specs.PIDNamespace {
			c.spec.Linux.Namespaces[i].Path = fmt.Sprintf("/proc/%d/ns/pid", pid)
		}
	}
	c.create(t).start(t)
	if exit := c.wait(t); exit.Code != 4 {
		t.Errorf("exit %+v", exit)
	}
	if got := c.log(t); got == "stdout F 1\n" {
		t.Error("the container has a PID namespace of its own")
	}
	eventually(t, "the pause process reaps what was killed", func() bool { return len(enginetest.ProcessesOf(c.id)) == 0 })
	c.delete(t)
	if err := p.Exec(within(t), client.ExecRequest{ID: pause.id, ExecID: "x", Process: &specs.Process{}}); !errdefs.IsNotImplemented(err) {
		t.Errorf("exec in a pause process: %v", err)
	}
	check(t, p.Kill(within(t), pause.id, "", syscall.SIGTERM, false))
	if exit := pause.wait(t); exit.Code != 143 {
		t.Errorf("exit %+v", exit)
	}
	pause.delete(t)
}

func TestExecOverFIFOs(t *testing.T) {
	p := newPod(t, "")
	c := p.container(enginetest.Program{Kind: enginetest.Sleep}).create(t).start(t)
	dir := t.TempDir()
	r := client.ExecRequest{
		ID: c.id, ExecID: "e1", Stdin: dir + "/in", Stdout: dir + "/out", Stderr: dir + "/err",
		Process: &specs.Process{Args: []string{"/bin/sh", "-c", "cat; echo done >&2; exit 3"}, Cwd: "/", Env: []string{"PATH=/bin"}},
	}
	texts := make(chan [2]string, 1)
	for _, f := range []string{r.Stdin, r.Stdout, r.Stderr} {
		check(t, unix.Mkfifo(f, 0o600))
	}
	go func() {
		out := make(chan string)
		go func() { data, _ := os.ReadFile(r.Stdout); out <- string(data) }()
		data, _ := os.ReadFile(r.Stderr)
		texts <- [2]string{<-out, string(data)}
	}()
	check(t, p.Exec(within(t), r))
	if err := p.Exec(within(t), r); !errdefs.IsAlreadyExists(err) {
		t.Errorf("exec twice: %v", err)
	}
	if err := p.Kill(within(t), c.id, "e1", syscall.SIGTERM, false); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("kill before start: %v", err)
	}
	must(p.Start(within(t), c.id, "e1"))(t)
	in := must(os.OpenFile(r.Stdin, os.O_WRONLY, 0))(t)
	big := strings.Repeat("0123456789\n", 50_000)
	in.WriteString(big)
	in.Close()
	exit := must(p.Wait(within(t), c.id, "e1"))(t)
	if exit.Code != 3 {
		t.Errorf("exit %+v", exit)
	}
	if got := <-texts; got[0] != big || got[1] != "done\n" {
		t.Errorf("%d bytes of stdout, want %d; stderr %q", len(got[0]), len(big), got[1])
	}
	if deleted := must(p.Delete(within(t), c.id, "e1"))(t); deleted != exit {
		t.Errorf("delete %+v, wait %+v", deleted, exit)
	}
	if _, err := p.State(within(t), c.id, "e1"); !errdefs.IsNotFound(err) {
		t.Errorf("state of a deleted exec: %v", err)
	}
	bad := client.ExecRequest{ID: c.id, ExecID: "e2", Process: &specs.Process{Args: []string{"/nothing"}, Cwd: "/"}}
	check(t, p.Exec(within(t), bad))
	if _, err := p.Start(within(t), c.id, "e2"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("exec of nothing: %v", err)
	}
	must(p.Delete(within(t), c.id, "e2"))(t)
	check(t, p.Kill(within(t), c.id, "", syscall.SIGKILL, true))
	c.wait(t)
	c.delete(t)
}

func TestTerminals(t *testing.T) {
	p := newPod(t, "")
	c := p.container(enginetest.Program{}).script("stty_size() { cat /proc/self/stat >/dev/null; }; test -t 0 && test -t 1 && echo tty; echo err >&2; read line; echo got $line; exec sleep 1000")
	c.spec.Process.Terminal, c.req.Terminal = true, true
	c.req.Stderr = ""
	c.req.Stdin = filepath.Join(t.TempDir(), "in")
	check(t, unix.Mkfifo(c.req.Stdin, 0o600))
	c.create(t).start(t)
	check(t, p.ResizePty(within(t), c.id, "", 80, 24))
	in := must(os.OpenFile(c.req.Stdin, os.O_WRONLY, 0))(t)
	defer in.Close()
	fmt.Fprintln(in, "hello")
	eventually(t, "the terminal's output is logged", func() bool {
		log := c.log(t)
		return strings.Contains(log, "stdout F tty\n") && strings.Contains(log, "stdout F err\n") && strings.Contains(log, "stdout F got hello\n")
	})
	out := filepath.Join(t.TempDir(), "out")
	check(t, unix.Mkfifo(out, 0o600))
	text := make(chan string, 1)
	go func() { data, _ := os.ReadFile(out); text <- string(data) }()
	check(t, p.Exec(within(t), client.ExecRequest{
		ID: c.id, ExecID: "t", Stdout: out, Terminal: true,
		Process: &specs.Process{Args: []string{"/bin/sh", "-c", "test -t 1 && echo yes"}, Cwd: "/", Env: []string{"PATH=/bin"}},
	}))
	must(p.Start(within(t), c.id, "t"))(t)
	if exit := must(p.Wait(within(t), c.id, "t"))(t); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	if got := <-text; got != "yes\r\n" {
		t.Errorf("output %q", got)
	}
	must(p.Delete(within(t), c.id, "t"))(t)
	check(t, p.Kill(within(t), c.id, "", syscall.SIGKILL, true))
	c.wait(t)
	c.delete(t)
}

func TestUpdateAndPids(t *testing.T) {
	p := newPod(t, "")
	c := p.container(enginetest.Program{Kind: enginetest.Sleep}).create(t).start(t)
	limit := int64(64 << 20)
	check(t, p.Update(within(t), c.id, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}))
	state := must(p.State(within(t), c.id, ""))(t)
	if pids := must(p.Pids(within(t), c.id))(t); len(pids) != 1 || pids[0] != state.PID {
		t.Errorf("pids %v, init is %d", pids, state.PID)
	}
	check(t, p.Kill(within(t), c.id, "", syscall.SIGKILL, false))
	c.wait(t)
	c.delete(t)
}

// TestPauseProcessEndsWithTheShim has a shim killed whose state nobody cleans up.
func TestPauseProcessEndsWithTheShim(t *testing.T) {
	p := newPod(t, "")
	pause := p.pause()
	pid := must(pause.tryCreate(t))(t)
	pause.start(t)
	c := p.container(enginetest.Program{Kind: enginetest.Exit, Code: 3}).create(t).start(t) // a fork that must not hold on to it
	if exit := c.wait(t); exit.Code != 3 || !alive(pid) {
		t.Errorf("exit %+v; the pause process is there: %t", exit, alive(pid))
	}
	check(t, syscall.Kill(p.PID(), syscall.SIGKILL))
	ended(t, p)
	eventually(t, "the pause process ends", func() bool { return !alive(pid) })
}

func TestLongPaths(t *testing.T) {
	enginetest.NeedRoot(t)
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120), strings.Repeat("e", 120))
	check(t, os.MkdirAll(dir, 0o755))
	binary := must(os.Executable())(t)
	c := must(client.Start(within(t), client.StartOptions{Binary: binary, Namespace: "n", ID: "x", Dir: dir}))(t)
	check(t, c.Close())
	again := must(client.Connect(within(t), dir))(t)
	shutDown(t, again)
	select {
	case <-again.Done():
	case <-time.After(patience):
		t.Error("the shim does not end")
	}
}
