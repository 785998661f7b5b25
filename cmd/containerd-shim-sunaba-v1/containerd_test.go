package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/containerd/cgroups/v3/cgroup1/stats"
	stats2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	taskv2 "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/runtime/task/v3"
	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/ttrpc"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/enginetest"
)

// containerd is what a shim knows of containerd: bundles it makes, commands it runs, events it
// takes.
type containerd struct {
	t         testing.TB
	namespace string
	dir       string
	root      string
	events    string // ttrpc socket

	mu     sync.Mutex
	topics []string
}

func newContainerd(t testing.TB) *containerd {
	t.Helper()
	enginetest.NeedRoot(t)
	c := &containerd{t: t, namespace: "test-" + enginetest.NewID()[:8], dir: t.TempDir(), root: enginetest.BusyboxRoot(t)}
	c.events = filepath.Join(c.dir, "containerd.sock.ttrpc")
	listener := must(net.Listen("unix", c.events))(t)
	server := must(ttrpc.NewServer())(t)
	eventsapi.RegisterTTRPCEventsService(server, c)
	ctx, cancel := context.WithCancel(context.Background())
	go server.Serve(ctx, listener)
	t.Cleanup(func() {
		cancel()
		server.Close()
		os.Remove(filepath.Join("/run/sunaba/runc", c.namespace))
		os.Remove("/run/sunaba/runc")
		os.Remove("/run/sunaba")
		eventually(t, "no process is left", func() bool { return len(processesIn(t, c.dir)) == 0 }) // one that ends closes its socket first
	})
	return c
}

// Forward takes an event.
func (c *containerd) Forward(ctx context.Context, r *eventsapi.ForwardRequest) (*emptypb.Empty, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Envelope.Namespace != c.namespace {
		c.t.Errorf("event of namespace %q", r.Envelope.Namespace)
	}
	c.topics = append(c.topics, r.Envelope.Topic)
	return &emptypb.Empty{}, nil
}

func (c *containerd) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.topics)
}

// bundle makes a bundle of a pod as containerd does.
func (c *containerd) bundle(sandbox string, p enginetest.Program) (id, path string) {
	c.t.Helper()
	id = enginetest.NewID()
	spec := enginetest.BusyboxSpec(id, c.root, enginetest.BusyboxProcess(p))
	if sandbox != "" {
		spec.Annotations[annotation.SandboxID] = sandbox
	}
	return id, enginetest.WriteBundle(c.t, c.dir, id, spec)
}

// command runs a command of the shim binary as containerd would, with more environment and standard
// input.
func (c *containerd) command(id, path, action string, stdin []byte, env ...string) []byte {
	c.t.Helper()
	args := []string{"-namespace", c.namespace, "-address", filepath.Join(c.dir, "containerd.sock"), "-publish-binary", "/bin/false", "-id", id}
	if action == "delete" {
		args = append(args, "-bundle", path)
	}
	cmd := exec.Command(must(os.Executable())(c.t), append(args, action)...)
	cmd.Dir = path
	cmd.Env = append(os.Environ(), append(env, "TTRPC_ADDRESS="+c.events)...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput() // as containerd reads it: anything else on it would be part of the answer
	if err != nil {
		c.t.Fatalf("%s: %v: %s", action, err, out)
	}
	return out
}

// dial connects to an address as a shim gave it.
func (c *containerd) dial(address string) *ttrpc.Client {
	c.t.Helper()
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok || len(path) > 106 {
		c.t.Fatalf("address %q", address)
	}
	client := ttrpc.NewClient(must(net.Dial("unix", path))(c.t))
	c.t.Cleanup(func() { client.Close() })
	return client
}

func (c *containerd) end(client *ttrpc.Client, address string) {
	c.t.Helper()
	// That it went may be known before its answer is.
	if _, err := task.NewTTRPCTaskClient(client).Shutdown(within(c.t), &task.ShutdownRequest{}); err != nil && !errors.Is(err, ttrpc.ErrClosed) {
		c.t.Fatal(err)
	}
	check(c.t, client.UserOnCloseWait(within(c.t)))
	if _, err := os.Stat(strings.TrimPrefix(address, "unix://")); !os.IsNotExist(err) {
		c.t.Error("the shim left its socket")
	}
}

func TestStartAnswersEveryGeneration(t *testing.T) {
	c := newContainerd(t)
	sockets := must(os.MkdirTemp("", "s"))(t) // short, as containerd's is
	t.Cleanup(func() { os.Remove(sockets) })
	id, path := c.bundle("", enginetest.Program{})
	params := must(proto.Marshal(&bootapi.BootstrapParams{
		InstanceID: id, Namespace: c.namespace, ContainerdTtrpcAddress: "unix://" + c.events, SocketDir: &sockets,
	}))(t)

	t.Run("plain address", func(t *testing.T) {
		address := string(c.command(id, path, "start", nil))
		c.end(c.dial(address), address)
		if kept := string(must(os.ReadFile(filepath.Join(path, "address")))(t)); kept != address {
			t.Errorf("address file %q, answer %q", kept, address)
		}
	})
	t.Run("JSON", func(t *testing.T) {
		var answer struct {
			Version           int
			Address, Protocol string
		}
		options := must(proto.Marshal(&types.RuntimeRequest{RuntimePath: "x"}))(t) // older ones send options, of any type
		check(t, json.Unmarshal(c.command(id, path, "start", options, "MAX_SHIM_VERSION=2"), &answer))
		if answer.Version != 2 || answer.Protocol != "ttrpc" {
			t.Errorf("answer %+v", answer)
		}
		c.end(c.dial(answer.Address), answer.Address)
	})
	t.Run("protobuf", func(t *testing.T) {
		var answer bootapi.BootstrapResult
		check(t, proto.Unmarshal(c.command(id, path, "start", params, "MAX_SHIM_VERSION=2"), &answer))
		if answer.Version != 3 || answer.Protocol != "ttrpc" || !strings.HasPrefix(answer.Address, "unix://"+sockets) {
			t.Errorf("answer %+v", &answer)
		}
		c.end(c.dial(answer.Address), answer.Address)
	})
}

func TestPodsContainersShareOneShim(t *testing.T) {
	c := newContainerd(t)
	pod, podPath := c.bundle("", enginetest.Program{})
	first := string(c.command(pod, podPath, "start", nil))
	member, memberPath := c.bundle(pod, enginetest.Program{})
	if second := string(c.command(member, memberPath, "start", nil)); second != first {
		t.Errorf("addresses %q and %q", first, second)
	}
	stranger, strangerPath := c.bundle("", enginetest.Program{})
	other := string(c.command(stranger, strangerPath, "start", nil))
	if other == first {
		t.Error("a container of no pod shares a pod's shim")
	}
	c.end(c.dial(other), other)

	client := c.dial(first)
	shimPid := int(must(task.NewTTRPCTaskClient(client).Connect(within(t), &task.ConnectRequest{ID: pod}))(t).ShimPid)
	check(t, syscall.Kill(shimPid, syscall.SIGKILL))
	check(t, client.UserOnCloseWait(within(t)))
	if again := string(c.command(pod, podPath, "start", nil)); again != first { // over the dead one's socket
		t.Errorf("addresses %q and %q", again, first)
	}
	c.end(c.dial(first), first)
}

// TestLifeUnderContainerd drives a container over FIFOs and the older Task API, and looks at the
// events.
func TestLifeUnderContainerd(t *testing.T) {
	c := newContainerd(t)
	id, path := c.bundle("", enginetest.Program{Kind: enginetest.Cat})
	check(t, bundle.Annotate(path, annotation.ModulePath, "/etc/shadow")) // by a pod's author, who has no say in it
	address := string(c.command(id, path, "start", nil))
	connection := c.dial(address)
	api := taskv2.NewTTRPCTaskClient(connection)
	fifos := map[string]string{}
	for _, name := range []string{"in", "out", "err"} {
		fifos[name] = filepath.Join(path, name)
		check(t, unix.Mkfifo(fifos[name], 0o600))
	}
	out := must(os.OpenFile(fifos["out"], os.O_RDONLY|unix.O_NONBLOCK, 0))(t)
	errs := must(os.OpenFile(fifos["err"], os.O_RDONLY|unix.O_NONBLOCK, 0))(t)
	defer out.Close()
	defer errs.Close()
	created := must(api.Create(within(t), &taskv2.CreateTaskRequest{
		ID: id, Bundle: path, Stdin: fifos["in"], Stdout: fifos["out"], Stderr: fifos["err"],
	}))(t)
	if created.Pid == 0 {
		t.Error("no pid")
	}
	must(api.Start(within(t), &taskv2.StartRequest{ID: id}))(t)
	in := must(os.OpenFile(fifos["in"], os.O_WRONLY, 0))(t)
	must(in.WriteString("echo\n"))(t)

	var processes, memory, cpu uint64
	eventually(t, "only the program is left of the start", func() bool {
		processes, memory, cpu = figures(t, must(api.Stats(within(t), &taskv2.StatsRequest{ID: id}))(t).Stats)
		return processes == 1
	})
	if memory == 0 || cpu == 0 {
		t.Errorf("stats: %d bytes, %d of CPU time", memory, cpu)
	}
	if _, err := api.Checkpoint(within(t), &taskv2.CheckpointTaskRequest{ID: id}); err == nil || !strings.Contains(err.Error(), "not absolute") {
		t.Errorf("checkpoint to nowhere: %v", err)
	}
	in.Close() // another writer may come until the input is closed
	must(api.CloseIO(within(t), &taskv2.CloseIORequest{ID: id, Stdin: true}))(t)
	waited := must(api.Wait(within(t), &taskv2.WaitRequest{ID: id}))(t)
	if waited.ExitStatus != 0 {
		t.Errorf("exit %v", waited)
	}
	if data := must(io.ReadAll(out))(t); string(data) != "echo\n" {
		t.Errorf("output %q", data)
	}
	must(api.Delete(within(t), &taskv2.DeleteRequest{ID: id}))(t)
	c.end(connection, address)
	want := []string{"/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"}
	eventually(t, "events arrive", func() bool { return len(c.seen()) >= len(want) })
	if got := c.seen(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestDeleteFromTheBundleAlone(t *testing.T) {
	c := newContainerd(t)
	id, path := c.bundle("", enginetest.Program{Kind: enginetest.Sleep})
	address := string(c.command(id, path, "start", nil))
	connection := c.dial(address)
	api := task.NewTTRPCTaskClient(connection)
	upper, work := t.TempDir(), t.TempDir()
	pid := must(api.Create(within(t), &task.CreateTaskRequest{ID: id, Bundle: path, Rootfs: []*types.Mount{
		{Type: "overlay", Source: "overlay", Options: []string{"lowerdir=" + c.root, "upperdir=" + upper, "workdir=" + work}},
	}}))(t).Pid
	must(api.Start(within(t), &task.StartRequest{ID: id}))(t)
	shimPid := int(must(api.Connect(within(t), &task.ConnectRequest{ID: id}))(t).ShimPid)
	check(t, syscall.Kill(shimPid, syscall.SIGKILL))
	check(t, connection.UserOnCloseWait(within(t)))
	for round := range 2 {
		var answer task.DeleteResponse
		check(t, proto.Unmarshal(c.command(id, path, "delete", nil), &answer))
		if round == 0 && answer.Pid != pid {
			t.Errorf("pid %d, was %d", answer.Pid, pid)
		}
		if answer.ExitStatus != 137 || time.Since(answer.ExitedAt.AsTime()) > patience {
			t.Errorf("answer %v", &answer)
		}
	}
	eventually(t, "no process is left", func() bool { return len(enginetest.ProcessesOf(id)) == 0 })
	if strings.Contains(string(must(os.ReadFile("/proc/self/mountinfo"))(t)), id) {
		t.Error("the root is still mounted")
	}
	if left := must(filepath.Glob("/sys/fs/cgroup/*" + enginetest.CgroupParent + "/" + id))(t); len(left) > 0 {
		t.Errorf("cgroups left: %v", left)
	}
	if _, err := os.Stat(strings.TrimPrefix(address, "unix://")); !os.IsNotExist(err) {
		t.Errorf("the dead shim's socket: %v", err)
	}
}

func TestInfoAndVersion(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"-info"}, strings.NewReader(""), &out, &errs); code != 0 {
		t.Fatalf("code %d: %s", code, errs.String())
	}
	var info types.RuntimeInfo
	check(t, proto.Unmarshal(out.Bytes(), &info))
	if info.Name != "io.containerd.sunaba.v1" {
		t.Errorf("name %q", info.Name)
	}
	var f features.Features
	check(t, json.Unmarshal(info.Features.GetValue(), &f))
	if f.OCIVersionMax == "" || len(f.MountOptions) == 0 {
		t.Errorf("features %+v", f)
	}
	for _, name := range []string{"-v", "-version", "--version"} {
		out.Reset()
		if code := run([]string{name}, nil, &out, &errs); code != 0 || !strings.Contains(out.String(), "Version: ") {
			t.Errorf("%s: code %d, %q", name, code, out.String())
		}
	}
}

// TestCoreScheduling starts a shim for containerd's option sched_core: it has a core to itself, or
// where the kernel cannot do that there is none.
func TestCoreScheduling(t *testing.T) {
	c := newContainerd(t)
	id, path := c.bundle("", enginetest.Program{})
	cookie := func(pid int) (value uint64, err error) {
		err = unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, uintptr(pid), unix.PR_SCHED_CORE_SCOPE_THREAD, uintptr(unsafe.Pointer(&value)))
		return value, err
	}
	if _, unsupported := cookie(0); unsupported != nil {
		cmd := exec.Command(must(os.Executable())(t), "-namespace", c.namespace, "-id", id, "start")
		cmd.Dir, cmd.Env = path, append(os.Environ(), "SCHED_CORE=1")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "core scheduling") {
			t.Errorf("without the kernel: %v: %s", err, out)
		}
		return
	}
	address := string(c.command(id, path, "start", nil, "SCHED_CORE=1"))
	client := c.dial(address)
	pid := int(must(task.NewTTRPCTaskClient(client).Connect(within(t), &task.ConnectRequest{ID: id}))(t).ShimPid)
	if value, err := cookie(pid); value == 0 || err != nil {
		t.Errorf("cookie %d, %v", value, err)
	}
	c.end(client, address)
}

func TestCommandLineErrors(t *testing.T) {
	for _, args := range [][]string{
		{}, {"-nonsense"}, {"start"}, {"-namespace", "n", "-id", "x"}, {"-namespace", "n", "-id", "x", "nonsense"},
	} {
		var out, errs bytes.Buffer
		if code := run(args, strings.NewReader(""), &out, &errs); code == 0 || errs.Len() == 0 || out.Len() > 0 {
			t.Errorf("%q: code %d, stdout %q, stderr %q", args, code, out.String(), errs.String())
		}
	}
}

// figures reads the metrics of the version of cgroups that this machine has.
func figures(t *testing.T, answer *anypb.Any) (processes, memory, cpu uint64) {
	t.Helper()
	if cgroup.Unified() {
		if answer.TypeUrl != "io.containerd.cgroups.v2.Metrics" {
			t.Fatalf("stats of type %q", answer.TypeUrl)
		}
		var m stats2.Metrics
		check(t, proto.Unmarshal(answer.Value, &m))
		return m.Pids.Current, m.Memory.Usage, m.CPU.UsageUsec
	}
	if answer.TypeUrl != "io.containerd.cgroups.v1.Metrics" {
		t.Fatalf("stats of type %q", answer.TypeUrl)
	}
	var m stats.Metrics
	check(t, proto.Unmarshal(answer.Value, &m))
	return m.Pids.Current, m.Memory.Usage.Usage, m.CPU.Usage.Total
}
