package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/bundle"
)

func TestMoves(t *testing.T) {
	all := []state{created, running, paused, stopped, deleted}
	allowed := map[string]bool{
		"created running": true, "created stopped": true, "created deleted": true,
		"running paused": true, "running stopped": true,
		"paused running": true, "paused stopped": true,
		"stopped deleted": true,
	}
	for _, from := range all {
		for _, to := range all {
			name := from.String() + " " + to.String()
			err := from.to(to)
			switch {
			case allowed[name] && err != nil:
				t.Errorf("%s: %v", name, err)
			case !allowed[name] && from == deleted && !errdefs.IsNotFound(err):
				t.Errorf("%s: %v, want not found", name, err)
			case !allowed[name] && from != deleted && !errdefs.IsFailedPrecondition(err):
				t.Errorf("%s: %v, want failed precondition", name, err)
			}
		}
	}
}

func TestUndoRunsBackwards(t *testing.T) {
	var u undo
	got := ""
	for _, s := range []string{"a", "b", "c"} {
		u.add(func() { got += s })
	}
	u.run()
	if got != "cba" {
		t.Errorf("order %q", got)
	}
	u.release()
	u.run()
	if got != "cba" {
		t.Error("released steps ran")
	}
}

func TestDecodeOptions(t *testing.T) {
	pack := func(m proto.Message) *anypb.Any {
		a, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		a.TypeUrl = strings.TrimPrefix(a.TypeUrl, "type.googleapis.com/") // as typeurl names it
		return a
	}
	file := filepath.Join(t.TempDir(), "options.toml")
	if err := os.WriteFile(file, []byte("BinaryName = 'from-file'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := ServiceOptions{RuntimeRoot: "/default", Namespace: "ns"}
	for name, c := range map[string]struct {
		in   *anypb.Any
		want Options
	}{
		"none": {nil, Options{Root: "/default"}},
		"runc": {pack(&options.Options{BinaryName: "crun", SystemdCgroup: true, NoPivotRoot: true}),
			Options{Binary: "crun", Root: "/default", SystemdCgroup: true, NoPivotRoot: true}},
		"all of runc's": {pack(&options.Options{NoNewKeyring: true, IoUid: 1, IoGid: 2, ShimCgroup: "/shims", CriuImagePath: "/criu"}),
			Options{Root: "/default", NoNewKeyring: true, IOUID: 1, IOGID: 2, ShimCgroup: "/shims"}},
		"runc with root": {pack(&options.Options{Root: "/r"}), Options{Root: "/r/ns"}},
		"containerd's table": {pack(&runtimeoptions.Options{ConfigBody: []byte("# runc's\n\n  BinaryName = \"/usr/bin/crun\" # not runc\n  Root = \"\"\n  SystemdCgroup = true # as the kubelet\n  CriuImagePath = ''\n")}),
			Options{Binary: "/usr/bin/crun", Root: "/default", SystemdCgroup: true}},
		"containerd's whole table": {pack(&runtimeoptions.Options{ConfigBody: []byte("BinaryName = ''\nCriuImagePath = ''\nCriuWorkPath = ''\nIoGid = 7\nIoUid = 1_000\n" +
			"NoNewKeyring = false\nNoPivotRoot = true\nRoot = '/a#b'\nShimCgroup = '/s'\nSystemdCgroup = false\n")}),
			Options{Root: "/a#b/ns", IOUID: 1000, IOGID: 7, NoPivotRoot: true, ShimCgroup: "/s"}},
		"containerd's file": {pack(&runtimeoptions.Options{ConfigPath: file}), Options{Binary: "from-file", Root: "/default"}},
	} {
		if got, err := decodeOptions(c.in, s); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for name, in := range map[string]*anypb.Any{
		"other type":    {TypeUrl: "some.other.Options"},
		"bad value":     {TypeUrl: "containerd.runc.v1.Options", Value: []byte{0xff}},
		"bad bool":      pack(&runtimeoptions.Options{ConfigBody: []byte("SystemdCgroup = maybe\n")}),
		"bad string":    pack(&runtimeoptions.Options{ConfigBody: []byte("BinaryName = crun\n")}),
		"open string":   pack(&runtimeoptions.Options{ConfigBody: []byte("BinaryName = 'crun\n")}),
		"two strings":   pack(&runtimeoptions.Options{ConfigBody: []byte("BinaryName = 'crun' 'runc'\n")}),
		"bad number":    pack(&runtimeoptions.Options{ConfigBody: []byte("IoUid = -1\n")}),
		"unknown":       pack(&runtimeoptions.Options{ConfigBody: []byte("SystemdCGroup = true\n")}),
		"a table":       pack(&runtimeoptions.Options{ConfigBody: []byte("[options]\nSystemdCgroup = true\n")}),
		"relative root": pack(&options.Options{Root: "r"}),
	} {
		if _, err := decodeOptions(in, s); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, want invalid argument", name, err)
		}
	}
}

func TestProgramPart(t *testing.T) {
	for line, want := range map[string]bool{
		"00400000-0085f000 r-xp 00000000 fe:00 1234    /bin/shim":          true,
		"0085f000-00d6a000 r--p 0045f000 fe:00 1234    /bin/shim":          true,
		"00d6a000-00da2000 rw-p 0096a000 fe:00 1234    /bin/shim":          false,
		"00d6a000-00da2000 r--s 0096a000 fe:00 1234    /bin/shim":          false,
		"00400000-0085f000 r-xp 00000000 fe:00 1234    /bin/other":         false,
		"00da2000-02ddc000 r-xp 00000000 00:00 0":                          false,
		"7ffd53297000-7ffd532b8000 rw-p 00000000 00:00 0          [stack]": false,
	} {
		p, ok := programPart(line, "/bin/shim")
		if ok != want || ok && p.length == 0 {
			t.Errorf("%q: %v, %v", line, p, ok)
		}
	}
	if len(programParts()) == 0 {
		t.Error("this program has no parts")
	}
	GiveMemoryBack() // and goes on after it
}

// fake is an engine whose containers exist only in memory.
type fake struct {
	name    string
	handles bool
	err     error
	stuck   error // of Start
	created int
}

func (f *fake) Name() string { return f.name }

func (f *fake) Handles(context.Context, *Bundle) (bool, error) { return f.handles, nil }

func (f *fake) Create(context.Context, *Bundle, IO, Options) (Container, error) {
	if f.err != nil {
		return nil, f.err
	}
	f.created++
	return &fakeContainer{fakeProcess: fakeProcess{exited: make(chan struct{}), stuck: f.stuck}}, nil
}

type fakeProcess struct {
	exited chan struct{}
	once   sync.Once
	exit   Exit
	stuck  error
}

func (p *fakeProcess) Pid() int                    { return os.Getpid() }
func (p *fakeProcess) Start(context.Context) error { return p.stuck }
func (p *fakeProcess) Signal(_ context.Context, sig syscall.Signal, all bool) error {
	p.once.Do(func() {
		p.exit = Exit{Code: 128 + uint32(sig), At: time.Now()}
		close(p.exited)
	})
	return nil
}
func (p *fakeProcess) Exited() <-chan struct{}           { return p.exited }
func (p *fakeProcess) Exit() Exit                        { return p.exit }
func (p *fakeProcess) Resize(width, height uint16) error { return nil }
func (p *fakeProcess) CloseStdin() error                 { return nil }

type fakeContainer struct {
	fakeProcess
	deletes int
	failing int // how many deletes fail
}

func (c *fakeContainer) Init() Process { return &c.fakeProcess }
func (c *fakeContainer) Exec(context.Context, string, *specs.Process, IO) (Process, error) {
	return nil, errdefs.ErrNotImplemented
}
func (c *fakeContainer) Pids(context.Context) ([]int, error)                 { return nil, nil }
func (c *fakeContainer) Pause(context.Context) error                         { return nil }
func (c *fakeContainer) Resume(context.Context) error                        { return nil }
func (c *fakeContainer) Update(context.Context, *specs.LinuxResources) error { return nil }
func (c *fakeContainer) Cgroup() string                                      { return "" }
func (c *fakeContainer) Details() Details                                    { return Details{LinearSize: 7} }
func (c *fakeContainer) Delete(context.Context) error {
	c.deletes++
	if c.deletes <= c.failing {
		return errors.New("not yet")
	}
	return nil
}

// recorder is a publisher that remembers.
type recorder struct {
	mu     sync.Mutex
	topics []string
}

func (r *recorder) Publish(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.topics = append(r.topics, e.Topic)
}

func newBundle(t *testing.T, annotations map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf(`{"ociVersion":"1.0.2","process":{"args":["x"],"cwd":"/","user":{},"oomScoreAdj":0},"annotations":{%s}}`, quoted(annotations))
	if err := os.WriteFile(filepath.Join(dir, bundle.ConfigName), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func quoted(m map[string]string) string {
	var parts []string
	for k, v := range m {
		parts = append(parts, fmt.Sprintf("%q:%q", k, v))
	}
	return strings.Join(parts, ",")
}

func newService(engines ...Engine) (taskAPI, *recorder) {
	r := &recorder{}
	return taskAPI{NewService(ServiceOptions{Namespace: "n", Engines: engines, Publisher: r, Logger: slog.New(slog.DiscardHandler), Done: func() {}})}, r
}

func TestEnginesAreAskedInOrder(t *testing.T) {
	first, second, third := &fake{name: "a"}, &fake{name: "b", handles: true}, &fake{name: "c", handles: true}
	api, _ := newService(first, second, third)
	dir := newBundle(t, nil)
	if _, err := api.create(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: dir}); err != nil {
		t.Fatal(err)
	}
	if first.created != 0 || second.created != 1 || third.created != 0 {
		t.Errorf("created %d, %d, %d", first.created, second.created, third.created)
	}
	if record, err := bundle.ReadTask(dir); err != nil || record.Engine != "b" {
		t.Errorf("record %+v, %v", record, err)
	}
}

func TestWasmUnderAnOCIHandlerIsRefused(t *testing.T) {
	engine := &fake{name: "wasm", handles: true}
	api, _ := newService(engine)
	for handler, refused := range map[string]bool{"oci": true, "wasm": false, "": false} {
		annotations := map[string]string{}
		if handler != "" {
			annotations[AnnotationHandlerType] = handler
		}
		dir := newBundle(t, annotations)
		_, err := api.create(t.Context(), &task.CreateTaskRequest{ID: "x" + handler, Bundle: dir})
		if refused {
			if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "RuntimeClass") {
				t.Errorf("handler %q: %v", handler, err)
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 1 {
				t.Errorf("handler %q: left %v", handler, entries)
			}
		} else if err != nil {
			t.Errorf("handler %q: %v", handler, err)
		}
	}
}

func TestEventsInOrderAndDeleteMayBeRepeated(t *testing.T) {
	engine := &fake{name: "x", handles: true}
	api, events := newService(engine)
	ctx := t.Context()
	dir := newBundle(t, nil)
	if _, err := api.create(ctx, &task.CreateTaskRequest{ID: "x", Bundle: dir}); err != nil {
		t.Fatal(err)
	}
	c, err := api.s.container("x")
	if err != nil {
		t.Fatal(err)
	}
	c.engine.(*fakeContainer).failing = 1
	if _, err := api.start(ctx, &task.StartRequest{ID: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.kill(ctx, &task.KillRequest{ID: "x", Signal: 15}); err != nil {
		t.Fatal(err)
	}
	waited, err := api.wait(ctx, &task.WaitRequest{ID: "x"})
	if err != nil || waited.ExitStatus != 143 {
		t.Fatalf("wait: %v, %v", waited, err)
	}
	if exit, ok := bundle.ReadExit(dir); !ok || exit.Code != 143 {
		t.Errorf("kept exit %+v, %v", exit, ok)
	}
	if _, err := api.delete(ctx, &task.DeleteRequest{ID: "x"}); err == nil {
		t.Error("a delete that failed in the engine succeeded")
	}
	if _, err := api.delete(ctx, &task.DeleteRequest{ID: "x"}); err != nil {
		t.Errorf("second delete: %v", err)
	}
	if _, err := api.delete(ctx, &task.DeleteRequest{ID: "x"}); !errdefs.IsNotFound(err) {
		t.Errorf("third delete: %v", err)
	}
	want := []string{"/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"}
	if !slices.Equal(events.topics, want) {
		t.Errorf("events %q", events.topics)
	}
}

func TestWaitEndsWithItsCaller(t *testing.T) {
	api, _ := newService(&fake{name: "x", handles: true})
	if _, err := api.create(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: newBundle(t, nil)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := api.wait(ctx, &task.WaitRequest{ID: "x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
}

func TestFailedCreateFreesTheName(t *testing.T) {
	engine := &fake{name: "x", handles: true, err: errors.New("no")}
	api, events := newService(engine)
	dir := newBundle(t, nil)
	if _, err := api.create(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: dir}); err == nil {
		t.Fatal("no error")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
	engine.err = nil
	if _, err := api.create(t.Context(), &task.CreateTaskRequest{ID: "x", Bundle: dir}); err != nil {
		t.Errorf("second try: %v", err)
	}
	if len(events.topics) != 1 {
		t.Errorf("events %q", events.topics)
	}
}

func TestLaunchThatCannotStartLeavesNothing(t *testing.T) {
	tasks, events := newService(&fake{handles: true, stuck: errdefs.ErrFailedPrecondition})
	dir := newBundle(t, nil)
	request := &task.CreateTaskRequest{ID: "x", Bundle: dir}
	if _, err := tasks.launch(t.Context(), request); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("launch: %v, want failed precondition", err)
	}
	if _, err := tasks.state(t.Context(), &task.StateRequest{ID: "x"}); !errdefs.IsNotFound(err) {
		t.Errorf("state: %v, want not found", err)
	}
	if _, err := bundle.ReadTask(dir); !errdefs.IsNotFound(err) {
		t.Errorf("record of the task: %v, want not found", err)
	}
	if want := []string{"/tasks/create", "/tasks/exit", "/tasks/delete"}; !slices.Equal(events.topics, want) {
		t.Errorf("events %q, want %q", events.topics, want)
	}

	tasks, events = newService(&fake{handles: true})
	answer, err := tasks.launch(t.Context(), request)
	var l api.Launched
	if err != nil || json.Unmarshal([]byte(answer.GetValue()), &l) != nil || l.PID != os.Getpid() || l.Begun.IsZero() {
		t.Errorf("launch: %v, %v", answer, err)
	}
	if want := []string{"/tasks/create", "/tasks/start"}; !slices.Equal(events.topics, want) {
		t.Errorf("events %q, want %q", events.topics, want)
	}
}

// flaky is an events service that fails at first.
type flaky struct {
	mu     sync.Mutex
	fails  int
	topics []string
}

func (f *flaky) Forward(ctx context.Context, r *eventsapi.ForwardRequest) (*emptypb.Empty, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails > 0 {
		f.fails--
		return nil, errors.New("busy")
	}
	if age := time.Since(r.Envelope.Timestamp.AsTime()); r.Envelope.Namespace != "n" || age < 0 || age > time.Minute {
		return nil, fmt.Errorf("envelope %v", r.Envelope)
	}
	f.topics = append(f.topics, r.Envelope.Topic+" "+r.Envelope.Event.TypeUrl)
	return &emptypb.Empty{}, nil
}

func TestPublisherKeepsOrderOverFailures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	service := &flaky{fails: 1}
	eventsapi.RegisterTTRPCEventsService(server, service)
	go server.Serve(context.Background(), l)
	defer server.Close()
	p := NewEventPublisher("unix://"+path, "n", slog.New(slog.DiscardHandler))
	p.Publish(createEvent(&task.CreateTaskRequest{}, 0))
	p.Publish(startEvent("", 0))
	p.Publish(exitEvent("", "", 0, 0, time.Time{}))
	p.Close()
	want := []string{"/tasks/create containerd.events.TaskCreate", "/tasks/start containerd.events.TaskStart", "/tasks/exit containerd.events.TaskExit"}
	if !slices.Equal(service.topics, want) {
		t.Errorf("events %q", service.topics)
	}
}
