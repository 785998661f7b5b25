package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sleeper is a task that runs until it is killed.
func (b *bench) sleeper(id string) *task {
	b.t.Helper()
	b.pull(world.busybox, "")
	k := b.task(id, nil, world.busybox, "/bin/sleep", "1000")
	k.create()
	k.start("")
	return k
}

// end kills the task and removes it.
func (k *task) end() {
	k.t.Helper()
	k.kill("", unix.SIGKILL, false)
	k.wait("")
	k.delete()
}

// TestInputOutlivesItsWriters has a client leave a container's input without closing it, as
// containerd does when it is restarted, and another come.
func TestInputOutlivesItsWriters(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.pull(world.busybox, "")
		k := b.task("cat", nil, world.busybox, "/bin/cat")
		k.create()
		k.start("")
		must(k.stdin.WriteString("one\n"))(t)
		check(t, k.stdin.Close())
		k.eventually("the input is read", func() bool { return left(t, k.fifo("in")) == 0 })
		time.Sleep(100 * time.Millisecond) // its end would be there by now
		k.is("", tasktypes.Status_RUNNING)
		k.stdin = must(os.OpenFile(k.fifo("in"), os.O_WRONLY|unix.O_NONBLOCK, 0))(t)
		must(k.stdin.WriteString("two\n"))(t)
		must(b.tasks.CloseIO(b.ctx(), &tasks.CloseIORequest{ContainerID: k.id, Stdin: true}))(t)
		if code := k.wait(""); code != 0 {
			t.Errorf("code %d", code)
		}
		if out := <-k.output; out != "one\ntwo\n" {
			t.Errorf("output %q", out)
		}
		k.delete()
	})
}

// left is how many bytes a FIFO holds.
func left(t *testing.T, fifo string) int {
	t.Helper()
	f := must(os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK, 0))(t)
	defer f.Close()
	return must(unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ))(t)
}

// TestInputOutlivesTheDaemon kills containerd, which holds the other end of a pod's input.
func TestInputOutlivesTheDaemon(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.image(world.busybox)
		p := b.runPod("sunaba", "input", nil)
		cat := p.begin("cat", world.busybox, []string{"/bin/cat"}, func(c *runtime.ContainerConfig) { c.Stdin = true })
		check(t, b.Signal(unix.SIGKILL))
		check(t, b.Run(t.Context()))
		if s := cat.status(); s.State != runtime.ContainerState_CONTAINER_RUNNING {
			t.Errorf("container is %v, exit code %d", s.State, s.ExitCode)
		}
		p.remove()
	})
}

// TestKilledExecOfAPausedTask kills an executed process of a task that is paused: it stays so.
func TestKilledExecOfAPausedTask(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		k := b.sleeper("paused")
		k.exec("e", "/bin/sleep", "1000")
		k.start("e")
		must(b.tasks.Pause(b.ctx(), &tasks.PauseTaskRequest{ContainerID: k.id}))(t)
		k.is("e", tasktypes.Status_PAUSED)
		k.kill("e", unix.SIGKILL, false)
		k.is("", tasktypes.Status_PAUSED)
		if _, err := b.tasks.Resume(b.ctx(), &tasks.ResumeTaskRequest{ContainerID: k.id}); err != nil {
			t.Errorf("resume: %v", err)
		}
		if code := k.wait("e"); code != 137 {
			t.Errorf("code %d", code)
		}
		k.is("", tasktypes.Status_RUNNING)
		k.exec("after", "/bin/true")
		k.start("after")
		if code := k.wait("after"); code != 0 {
			t.Errorf("code %d", code)
		}
		k.end()
	})
}

// TestExecThatFailsToStart waits for a process before its start, as clients do.
func TestExecThatFailsToStart(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		k := b.sleeper("failing")
		k.exec("e", "/nothing")
		waited := make(chan error, 1)
		go func() {
			_, err := b.tasks.Wait(b.ctx(), &tasks.WaitRequest{ContainerID: k.id, ExecID: "e"})
			waited <- err
		}()
		if _, err := b.tasks.Start(b.ctx(), &tasks.StartRequest{ContainerID: k.id, ExecID: "e"}); err == nil {
			t.Error("nothing was started")
		}
		select {
		case err := <-waited:
			check(t, err)
		case <-time.After(20 * time.Second):
			t.Error("its end is waited for")
		}
		_, err := b.tasks.Start(b.ctx(), &tasks.StartRequest{ContainerID: k.id, ExecID: "e"})
		b.refused("start again", err, errdefs.IsFailedPrecondition)
		must(b.tasks.DeleteProcess(b.ctx(), &tasks.DeleteProcessRequest{ContainerID: k.id, ExecID: "e"}))(t)
		k.end()
	})
}

// TestResizeBeforeTheStart tells an executed process the size of its terminal first, as ctr does.
func TestResizeBeforeTheStart(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		k := b.sleeper("sized")
		fifo := filepath.Join(k.dir, "terminal")
		check(t, unix.Mkfifo(fifo, 0o600))
		output := make(chan string, 1)
		go func() {
			data, _ := os.ReadFile(fifo)
			output <- string(data)
		}()
		k.execWith(func(r *tasks.ExecProcessRequest) { r.Terminal, r.Stdout = true, fifo }, "e", "/bin/sh", "-c", "busybox stty size </dev/tty")
		must(b.tasks.ResizePty(b.ctx(), &tasks.ResizePtyRequest{ContainerID: k.id, ExecID: "e", Width: 101, Height: 37}))(t)
		k.start("e")
		k.wait("e")
		if out := <-output; out != "37 101\r\n" {
			t.Errorf("output %q", out)
		}
		_, err := b.tasks.ResizePty(b.ctx(), &tasks.ResizePtyRequest{ContainerID: k.id, ExecID: "e", Width: 1, Height: 1})
		b.refused("resize what has ended", err, errdefs.IsFailedPrecondition)
		must(b.tasks.DeleteProcess(b.ctx(), &tasks.DeleteProcessRequest{ContainerID: k.id, ExecID: "e"}))(t)
		k.end()
	})
}

// TestExecBeforeTheStart executes a process in a task that is created and not started.
func TestExecBeforeTheStart(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.pull(world.busybox, "")
		heard := b.listen()
		k := b.task("early", nil, world.busybox, "/bin/sleep", "1000")
		k.create()
		k.exec("e", "/bin/sh", "-c", "exit 7")
		k.start("e")
		if code := k.wait("e"); code != 7 {
			t.Errorf("code %d", code)
		}
		must(b.tasks.DeleteProcess(b.ctx(), &tasks.DeleteProcessRequest{ContainerID: k.id, ExecID: "e"}))(t)
		k.is("", tasktypes.Status_CREATED)
		k.start("")
		k.end()
		want := []string{"create early", "exec-added early/e", "exec-started early/e", "exit early/e", "start early", "exit early", "delete early"}
		if got := heard.end(len(want)); !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

// TestLogAddressOfAnExec gives a process and one that is executed beside it the same logging
// program, which tells them apart by their ids.
func TestLogAddressOfAnExec(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.pull(world.busybox, "")
		dir := t.TempDir()
		program := filepath.Join(dir, "logger")
		check(t, os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\nexec 5>&-\ncat <&3 >%s/of-$CONTAINER_ID\n", dir), 0o755))
		k := b.task("first", nil, world.busybox, "/bin/sleep", "1000")
		r := k.request()
		r.Stdin, r.Stdout, r.Stderr = "", "binary://"+program, "binary://"+program
		must(b.tasks.Create(b.ctx(), r))(t)
		k.start("")
		k.execWith(func(e *tasks.ExecProcessRequest) { e.Stdout, e.Stderr = r.Stdout, r.Stderr }, "second", "/bin/echo", "two")
		k.start("second")
		k.wait("second")
		must(b.tasks.DeleteProcess(b.ctx(), &tasks.DeleteProcessRequest{ContainerID: k.id, ExecID: "second"}))(t)
		k.end()
		for name, want := range map[string]string{"of-first": "", "of-second": "two\n"} {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
				t.Errorf("%s: %q, %v", name, data, err)
			}
		}
	})
}

// TestGroupOfTasks has containers share a shim by the annotation that containerd's own shim reads.
func TestGroupOfTasks(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.pull(world.busybox, "")
		for _, id := range []string{"one", "two"} {
			b.run(id, []string{"--annotation", "io.containerd.runc.v2.group=both"}, world.busybox, "/bin/sleep", "1000")
		}
		if shims := b.shims(); len(shims) != 1 {
			t.Errorf("shims %v", shims)
		}
		b.remove("one")
		if got := must(b.tasks.Get(b.ctx(), &tasks.GetRequest{ContainerID: "two"}))(t).Process.Status; got != tasktypes.Status_RUNNING {
			t.Errorf("the other is %v", got)
		}
		b.remove("two")
	})
}
