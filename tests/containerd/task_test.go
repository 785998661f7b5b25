package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	stats1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	stats2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	taskevents "github.com/containerd/containerd/api/events"
	containers "github.com/containerd/containerd/api/services/containers/v1"
	events "github.com/containerd/containerd/api/services/events/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	apitypes "github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// task is a container whose task a test drives by containerd's own API, as Docker does.
type task struct {
	*bench
	id     string
	dir    string // of its FIFOs
	mounts []*apitypes.Mount
	stdin  *os.File
	output chan string
	// checkpoint is what it begins from, nil to run its program.
	checkpoint *apitypes.Descriptor
}

// task makes a container, not yet its task. Flags and what follows the image are ctr's.
func (b *bench) task(id string, flags []string, ref string, args ...string) *task {
	b.t.Helper()
	command := append([]string{"containers", "create", "--runtime", ours}, flags...)
	b.ctr(append(append(command, ref, id), args...)...)
	record := must(containerOf(b.Conn)(b.ctx(), &containers.GetContainerRequest{ID: id}))(b.t).Container
	k := &task{bench: b, id: id, dir: filepath.Join(b.Dir, "fifos", id), output: make(chan string, 1)}
	k.mounts = must(mountsOf(b.Conn)(b.ctx(), &snapshots.MountsRequest{
		Snapshotter: record.Snapshotter, Key: record.SnapshotKey,
	}))(b.t).Mounts
	check(b.t, os.MkdirAll(k.dir, 0o700))
	for _, name := range []string{"in", "out", "err"} {
		check(b.t, unix.Mkfifo(k.fifo(name), 0o600))
	}
	return k
}

func (k *task) fifo(name string) string { return filepath.Join(k.dir, name) }

// create makes the task; what it prints is read to its end.
func (k *task) create() uint32 {
	k.t.Helper()
	for _, name := range []string{"out", "err"} {
		go func() {
			data, _ := os.ReadFile(k.fifo(name)) // opening waits for the shim
			if name == "out" {
				k.output <- string(data)
			}
		}()
	}
	pid := must(k.tasks.Create(k.ctx(), k.request()))(k.t).Pid
	var err error
	k.stdin, err = os.OpenFile(k.fifo("in"), os.O_WRONLY|unix.O_NONBLOCK, 0)
	check(k.t, err)
	return pid
}

func (k *task) request() *tasks.CreateTaskRequest {
	return &tasks.CreateTaskRequest{
		ContainerID: k.id, Rootfs: k.mounts, Stdin: k.fifo("in"), Stdout: k.fifo("out"), Stderr: k.fifo("err"),
		Checkpoint: k.checkpoint,
	}
}

func (k *task) status(exec string) *tasktypes.Process {
	k.t.Helper()
	return must(k.tasks.Get(k.ctx(), &tasks.GetRequest{ContainerID: k.id, ExecID: exec}))(k.t).Process
}

// is checks a process's status.
func (k *task) is(exec string, want tasktypes.Status) {
	k.t.Helper()
	if got := k.status(exec); got.Status != want || want == tasktypes.Status_RUNNING && got.Pid == 0 {
		k.t.Errorf("task %q, process %q: %v, want %v", k.id, exec, got, want)
	}
}

// refused checks an error's class.
func (b *bench) refused(what string, err error, class func(error) bool) {
	b.t.Helper()
	if !class(errgrpc.ToNative(err)) {
		b.t.Errorf("%s: %v", what, err)
	}
}

func (k *task) start(exec string) uint32 {
	k.t.Helper()
	return must(k.tasks.Start(k.ctx(), &tasks.StartRequest{ContainerID: k.id, ExecID: exec}))(k.t).Pid
}

func (k *task) kill(exec string, signal unix.Signal, all bool) {
	k.t.Helper()
	must(k.tasks.Kill(k.ctx(), &tasks.KillRequest{ContainerID: k.id, ExecID: exec, Signal: uint32(signal), All: all}))(k.t)
}

func (k *task) wait(exec string) uint32 {
	k.t.Helper()
	r := must(k.tasks.Wait(k.ctx(), &tasks.WaitRequest{ContainerID: k.id, ExecID: exec}))(k.t)
	if time.Since(r.ExitedAt.AsTime()) > patience {
		k.t.Errorf("task %q, process %q exited at %v", k.id, exec, r.ExitedAt.AsTime())
	}
	return r.ExitStatus
}

func (k *task) delete() uint32 {
	k.t.Helper()
	code := must(k.tasks.Delete(k.ctx(), &tasks.DeleteTaskRequest{ContainerID: k.id}))(k.t).ExitStatus
	if k.stdin != nil {
		k.stdin.Close()
	}
	k.ctr("containers", "rm", k.id)
	return code
}

func (k *task) exec(id string, args ...string) {
	k.t.Helper()
	k.execWith(func(*tasks.ExecProcessRequest) {}, id, args...)
}

// execWith is exec with a request that is changed before.
func (k *task) execWith(change func(*tasks.ExecProcessRequest), id string, args ...string) {
	k.t.Helper()
	spec := must(json.Marshal(specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=/bin"}}))(k.t)
	r := &tasks.ExecProcessRequest{
		ContainerID: k.id, ExecID: id, Spec: &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Process", Value: spec},
	}
	change(r)
	must(k.tasks.Exec(k.ctx(), r))(k.t)
}

// listener collects a namespace's task events.
type listener struct {
	*bench
	stop  context.CancelFunc
	ready chan struct{} // closed when the first event was heard, which says nothing else
	done  chan struct{} // closed when nothing is heard any more

	mu   sync.Mutex
	seen []string
}

// topicReady is of events that only say that a listener hears.
const topicReady = "/tasks/ready"

func (b *bench) listen() *listener {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx())
	stream := must(subscribe(ctx, b.Conn, &events.SubscribeRequest{Filters: []string{`namespace==` + b.namespace + `,topic~="^/tasks/"`}}))(b.t)
	l := &listener{bench: b, stop: cancel, ready: make(chan struct{}), done: make(chan struct{})}
	go l.hear(stream)
	b.eventually("events are heard", func() bool { // a subscription has no answer
		must(publisherOf(b.Conn)(b.ctx(), &events.PublishRequest{Topic: topicReady, Event: &anypb.Any{TypeUrl: "containerd.events.TaskStart"}}))(b.t)
		select {
		case <-l.ready:
			return true
		default:
			return false
		}
	})
	return l
}

func (l *listener) hear(stream *eventStream) {
	defer close(l.done)
	for first := true; ; {
		e, err := stream.Recv()
		if err != nil {
			return
		}
		if e.Topic == topicReady {
			if first {
				close(l.ready)
				first = false
			}
			continue
		}
		l.mu.Lock()
		l.seen = append(l.seen, strings.TrimPrefix(e.Topic, "/tasks/")+" "+subject(e.Event))
		l.mu.Unlock()
	}
}

func (l *listener) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

// end waits for so many events and returns what was heard, with what came within a moment of the
// last.
func (l *listener) end(n int) []string {
	l.t.Helper()
	l.eventually(fmt.Sprintf("%d events come", n), func() bool { return len(l.heard()) >= n })
	time.Sleep(300 * time.Millisecond)
	l.stop()
	<-l.done
	return l.heard()
}

// subject is what an event is about: "container" or "container/process".
func subject(event *anypb.Any) string {
	id := func(m proto.Message) bool { return proto.Unmarshal(event.Value, m) == nil }
	switch event.TypeUrl {
	case "containerd.events.TaskCreate":
		var e taskevents.TaskCreate
		if id(&e) && e.Pid != 0 {
			return e.ContainerID
		}
	case "containerd.events.TaskStart":
		var e taskevents.TaskStart
		if id(&e) && e.Pid != 0 {
			return e.ContainerID
		}
	case "containerd.events.TaskExit":
		var e taskevents.TaskExit
		if id(&e) && e.Pid != 0 && e.ExitedAt != nil {
			if e.ID == e.ContainerID {
				return e.ID
			}
			return e.ContainerID + "/" + e.ID
		}
	case "containerd.events.TaskDelete":
		var e taskevents.TaskDelete
		if id(&e) && e.Pid != 0 && e.ExitedAt != nil {
			return e.ContainerID
		}
	case "containerd.events.TaskExecAdded":
		var e taskevents.TaskExecAdded
		if id(&e) {
			return e.ContainerID + "/" + e.ExecID
		}
	case "containerd.events.TaskExecStarted":
		var e taskevents.TaskExecStarted
		if id(&e) && e.Pid != 0 {
			return e.ContainerID + "/" + e.ExecID
		}
	case "containerd.events.TaskPaused":
		var e taskevents.TaskPaused
		if id(&e) {
			return e.ContainerID
		}
	case "containerd.events.TaskResumed":
		var e taskevents.TaskResumed
		if id(&e) {
			return e.ContainerID
		}
	case "containerd.events.TaskOOM":
		var e taskevents.TaskOOM
		if id(&e) {
			return e.ContainerID
		}
	}
	return "an event of type " + event.TypeUrl + " that is not whole"
}

func TestTaskAPI(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.pull(world.busybox, "")
		heard := b.listen()
		k := b.task("linux", []string{"--memory-limit", "100000000"}, world.busybox, "/bin/cat")
		pid := k.create()
		if got := k.status(""); pid == 0 || got.Pid != pid || got.Status != tasktypes.Status_CREATED || got.Stdout != k.fifo("out") {
			t.Errorf("created with pid %d: %v", pid, got)
		}
		_, err := b.tasks.Create(b.ctx(), k.request())
		b.refused("create twice", err, errdefs.IsAlreadyExists)
		if got := k.start(""); got != pid {
			t.Errorf("pid %d, was %d", got, pid)
		}
		k.is("", tasktypes.Status_RUNNING)
		_, err = b.tasks.Start(b.ctx(), &tasks.StartRequest{ContainerID: k.id})
		b.refused("start twice", err, errdefs.IsFailedPrecondition)

		k.exec("e1", "/bin/sleep", "1000")
		k.is("e1", tasktypes.Status_CREATED)
		execPid := k.start("e1")
		k.is("e1", tasktypes.Status_RUNNING)
		k.lists(map[uint32]string{pid: "", execPid: "e1"})
		_, err = b.tasks.ResizePty(b.ctx(), &tasks.ResizePtyRequest{ContainerID: k.id, ExecID: "e1", Width: 80, Height: 24})
		b.refused("resize without a terminal", err, errdefs.IsFailedPrecondition)
		k.kill("e1", unix.SIGTERM, false)
		if code := k.wait("e1"); code != 143 {
			t.Errorf("code %d", code)
		}
		if r := must(b.tasks.DeleteProcess(b.ctx(), &tasks.DeleteProcessRequest{ContainerID: k.id, ExecID: "e1"}))(t); r.ExitStatus != 143 || r.Pid != execPid {
			t.Errorf("deleted: %v", r)
		}
		k.exec("e2", "/nothing")
		if _, err := b.tasks.Start(b.ctx(), &tasks.StartRequest{ContainerID: k.id, ExecID: "e2"}); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("start nothing: %v", err)
		}
		must(b.tasks.DeleteProcess(b.ctx(), &tasks.DeleteProcessRequest{ContainerID: k.id, ExecID: "e2"}))(t)
		k.exec("e3", "/bin/sleep", "1000")
		k.start("e3")

		must(b.tasks.Pause(b.ctx(), &tasks.PauseTaskRequest{ContainerID: k.id}))(t)
		k.is("", tasktypes.Status_PAUSED)
		must(b.tasks.Resume(b.ctx(), &tasks.ResumeTaskRequest{ContainerID: k.id}))(t)
		k.is("", tasktypes.Status_RUNNING)
		_, err = b.tasks.Resume(b.ctx(), &tasks.ResumeTaskRequest{ContainerID: k.id})
		b.refused("resume twice", err, errdefs.IsFailedPrecondition)
		k.update(50 << 20)
		if limit := k.limit(); limit != 50<<20 {
			t.Errorf("memory limit %d", limit)
		}
		if exec.Command("criu", "check").Run() != nil {
			_, err = b.tasks.Checkpoint(b.ctx(), &tasks.CheckpointTaskRequest{ContainerID: k.id})
			b.refused("checkpoint without criu", err, errdefs.IsFailedPrecondition)
		}
		_, err = b.tasks.Delete(b.ctx(), &tasks.DeleteTaskRequest{ContainerID: k.id})
		b.refused("delete what runs", err, errdefs.IsFailedPrecondition)

		must(k.stdin.WriteString("a line\n"))(t)
		must(b.tasks.CloseIO(b.ctx(), &tasks.CloseIORequest{ContainerID: k.id, Stdin: true}))(t)
		if code := k.wait(""); code != 0 {
			t.Errorf("code %d", code)
		}
		if out := <-k.output; out != "a line\n" {
			t.Errorf("output %q", out)
		}
		k.is("", tasktypes.Status_STOPPED)
		_, err = b.tasks.Kill(b.ctx(), &tasks.KillRequest{ContainerID: k.id, Signal: uint32(unix.SIGTERM)})
		b.refused("kill what has ended", err, errdefs.IsNotFound)
		k.delete()
		_, err = b.tasks.Get(b.ctx(), &tasks.GetRequest{ContainerID: k.id})
		b.refused("get what was deleted", err, errdefs.IsNotFound)

		never := b.task("never", nil, world.busybox, "/bin/cat") // created and deleted
		never.create()
		never.delete()
		want := []string{
			"create linux", "start linux", "exec-added linux/e1", "exec-started linux/e1", "exit linux/e1", "exec-added linux/e2",
			"exec-added linux/e3", "exec-started linux/e3", "paused linux", "resumed linux", "exit linux/e3", "exit linux", "delete linux",
			"create never", "exit never", "delete never",
		}
		if got := heard.end(len(want)); !slices.Equal(got, want) {
			t.Errorf("events\n%q, want\n%q", got, want)
		}
	})
}

// lists checks the processes of a task, with the names of those that were executed.
func (k *task) lists(want map[uint32]string) {
	k.t.Helper()
	var got map[uint32]string
	// Whoever starts something there is listed too, for a moment.
	k.eventually(fmt.Sprintf("processes %v", want), func() bool {
		got = map[uint32]string{}
		for _, p := range must(k.tasks.ListPids(k.ctx(), &tasks.ListPidsRequest{ContainerID: k.id}))(k.t).Processes {
			var details options.ProcessDetails
			if p.Info != nil {
				check(k.t, proto.Unmarshal(p.Info.Value, &details))
			}
			got[p.Pid] = details.ExecID
		}
		return maps.Equal(got, want)
	})
	if !maps.Equal(got, want) {
		k.t.Errorf("processes %v, want %v", got, want)
	}
}

func (k *task) update(limit int64) {
	k.t.Helper()
	value := must(json.Marshal(specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}}))(k.t)
	must(k.tasks.Update(k.ctx(), &tasks.UpdateTaskRequest{
		ContainerID: k.id, Resources: &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources", Value: value},
	}))(k.t)
}

// figures are what a test reads of a task's metrics, whichever generation of cgroups they are of.
type figures struct{ memory, limit, cpu, pids, kills uint64 }

func (k *task) figures() figures {
	k.t.Helper()
	metrics := must(k.tasks.Metrics(k.ctx(), &tasks.MetricsRequest{Filters: []string{"id==" + k.id}}))(k.t).Metrics
	if len(metrics) != 1 {
		k.t.Fatalf("metrics %v", metrics)
	}
	switch data := metrics[0].Data; data.TypeUrl {
	case "io.containerd.cgroups.v1.Metrics":
		var m stats1.Metrics
		check(k.t, proto.Unmarshal(data.Value, &m))
		return figures{m.Memory.Usage.Usage, m.Memory.Usage.Limit, m.CPU.Usage.Total, m.Pids.Current, m.MemoryOomControl.OomKill}
	case "io.containerd.cgroups.v2.Metrics":
		var m stats2.Metrics
		check(k.t, proto.Unmarshal(data.Value, &m))
		return figures{m.Memory.Usage, m.Memory.UsageLimit, m.CPU.UsageUsec * 1000, m.Pids.Current, m.MemoryEvents.OomKill}
	default:
		k.t.Fatalf("metrics of type %q", data.TypeUrl)
		return figures{}
	}
}

func (k *task) limit() uint64 { k.t.Helper(); return k.figures().limit }

// TestTerminal resizes the terminal of a container and asks it for its size.
func TestTerminal(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		b.pull(world.busybox, "")
		k := b.task("tty", []string{"--tty"}, world.busybox, "/bin/sized")
		go func() {
			data, _ := os.ReadFile(k.fifo("out"))
			k.output <- string(data)
		}()
		r := k.request()
		r.Terminal, r.Stderr = true, ""
		must(b.tasks.Create(b.ctx(), r))(t)
		var err error
		k.stdin, err = os.OpenFile(k.fifo("in"), os.O_WRONLY|unix.O_NONBLOCK, 0)
		check(t, err)
		k.start("")
		must(b.tasks.ResizePty(b.ctx(), &tasks.ResizePtyRequest{ContainerID: k.id, Width: 101, Height: 37}))(t)
		must(k.stdin.WriteString("go\n"))(t)
		if code := k.wait(""); code != 0 {
			t.Errorf("code %d", code)
		}
		if out := <-k.output; !strings.Contains(out, "37 101") {
			t.Errorf("output %q", out)
		}
		k.delete()
	})
}
