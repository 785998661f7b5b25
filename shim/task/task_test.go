package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/events"
	"github.com/sunaba-project/sunaba/shim/message"
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

// fake is an engine whose containers exist only in memory.
type fake struct {
	name    string
	handles bool
	err     error
	stuck   error // of Start
	created int
}

func (f *fake) Name() string { return f.name }

func (f *fake) Handles(context.Context, *shim.Bundle) (bool, error) { return f.handles, nil }

func (f *fake) Create(context.Context, *shim.Bundle, shim.IO, shim.Options) (shim.Container, error) {
	if f.err != nil {
		return nil, f.err
	}
	f.created++
	return &fakeContainer{fakeProcess: fakeProcess{exited: make(chan struct{}), stuck: f.stuck}}, nil
}

type fakeProcess struct {
	exited chan struct{}
	once   sync.Once
	exit   shim.Exit
	stuck  error
}

func (p *fakeProcess) Pid() int                    { return os.Getpid() }
func (p *fakeProcess) Start(context.Context) error { return p.stuck }
func (p *fakeProcess) Signal(_ context.Context, sig syscall.Signal, all bool) error {
	p.once.Do(func() {
		p.exit = shim.Exit{Code: 128 + uint32(sig), At: time.Now()}
		close(p.exited)
	})
	return nil
}
func (p *fakeProcess) Exited() <-chan struct{}           { return p.exited }
func (p *fakeProcess) Exit() shim.Exit                   { return p.exit }
func (p *fakeProcess) Resize(width, height uint16) error { return nil }
func (p *fakeProcess) CloseStdin() error                 { return nil }

type fakeContainer struct {
	fakeProcess
	deletes int
	failing int          // how many deletes fail
	exec    shim.Process // nil = it has none
}

func (c *fakeContainer) Init() shim.Process { return &c.fakeProcess }
func (c *fakeContainer) Exec(context.Context, string, *specs.Process, shim.IO) (shim.Process, error) {
	if c.exec == nil {
		return nil, errdefs.ErrNotImplemented
	}
	return c.exec, nil
}
func (c *fakeContainer) Pids(context.Context) ([]int, error)                 { return nil, nil }
func (c *fakeContainer) Pause(context.Context) error                         { return nil }
func (c *fakeContainer) Resume(context.Context) error                        { return nil }
func (c *fakeContainer) Update(context.Context, *specs.LinuxResources) error { return nil }
func (c *fakeContainer) Cgroup() string                                      { return "" }
func (c *fakeContainer) Details() shim.Details                               { return shim.Details{LinearSize: 7} }
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

func (r *recorder) Publish(e events.Event) {
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

func newService(engines ...shim.Engine) (taskAPI, *recorder) {
	r := &recorder{}
	return taskAPI{New(Options{Namespace: "n", Engines: engines, Publisher: r, Logger: slog.New(slog.DiscardHandler), Done: func() {}})}, r
}

func TestEnginesAreAskedInOrder(t *testing.T) {
	first, second, third := &fake{name: "a"}, &fake{name: "b", handles: true}, &fake{name: "c", handles: true}
	api, _ := newService(first, second, third)
	dir := newBundle(t, nil)
	if _, err := api.create(t.Context(), &message.CreateTaskRequest{ID: "x", Bundle: dir}); err != nil {
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
			annotations[annotation.HandlerType] = handler
		}
		dir := newBundle(t, annotations)
		_, err := api.create(t.Context(), &message.CreateTaskRequest{ID: "x" + handler, Bundle: dir})
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
	if _, err := api.create(ctx, &message.CreateTaskRequest{ID: "x", Bundle: dir}); err != nil {
		t.Fatal(err)
	}
	c, err := api.s.table.find("x")
	if err != nil {
		t.Fatal(err)
	}
	c.engine.(*fakeContainer).failing = 1
	if _, err := api.start(ctx, &message.ProcessRequest{ID: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.kill(ctx, &message.KillRequest{ID: "x", Signal: 15}); err != nil {
		t.Fatal(err)
	}
	waited, err := api.wait(ctx, &message.ProcessRequest{ID: "x"})
	if err != nil || waited.ExitStatus != 143 {
		t.Fatalf("wait: %v, %v", waited, err)
	}
	if exit, ok := bundle.ReadExit(dir); !ok || exit.Code != 143 {
		t.Errorf("kept exit %+v, %v", exit, ok)
	}
	if _, err := api.delete(ctx, &message.ProcessRequest{ID: "x"}); err == nil {
		t.Error("a delete that failed in the engine succeeded")
	}
	if _, err := api.delete(ctx, &message.ProcessRequest{ID: "x"}); err != nil {
		t.Errorf("second delete: %v", err)
	}
	if _, err := api.delete(ctx, &message.ProcessRequest{ID: "x"}); !errdefs.IsNotFound(err) {
		t.Errorf("third delete: %v", err)
	}
	want := []string{"/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"}
	if !slices.Equal(events.topics, want) {
		t.Errorf("events %q", events.topics)
	}
}

func TestWaitEndsWithItsCaller(t *testing.T) {
	api, _ := newService(&fake{name: "x", handles: true})
	if _, err := api.create(t.Context(), &message.CreateTaskRequest{ID: "x", Bundle: newBundle(t, nil)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := api.wait(ctx, &message.ProcessRequest{ID: "x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
}

func TestFailedCreateFreesTheName(t *testing.T) {
	engine := &fake{name: "x", handles: true, err: errors.New("no")}
	api, events := newService(engine)
	dir := newBundle(t, nil)
	if _, err := api.create(t.Context(), &message.CreateTaskRequest{ID: "x", Bundle: dir}); err == nil {
		t.Fatal("no error")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
	engine.err = nil
	if _, err := api.create(t.Context(), &message.CreateTaskRequest{ID: "x", Bundle: dir}); err != nil {
		t.Errorf("second try: %v", err)
	}
	if len(events.topics) != 1 {
		t.Errorf("events %q", events.topics)
	}
}

// What a caller asks of a container that has just ended is refused without the container's id: who
// asked has a name for it, and says that.
func TestRefusalsOfAStoppedContainerHaveNoID(t *testing.T) {
	tasks, _ := newService(&fake{handles: true})
	const id = "5c0ffee"
	if _, err := tasks.create(t.Context(), &message.CreateTaskRequest{ID: id, Bundle: newBundle(t, nil)}); err != nil {
		t.Fatal(err)
	}
	if _, err := tasks.start(t.Context(), &message.ProcessRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := tasks.kill(t.Context(), &message.KillRequest{ID: id, Signal: 9}); err != nil {
		t.Fatal(err)
	}
	if _, err := tasks.wait(t.Context(), &message.ProcessRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	_, exec := tasks.exec(t.Context(), &message.ExecProcessRequest{ID: id, ExecID: "e", Spec: &message.Any{Value: []byte(`{"args":["true"]}`)}})
	_, pids := tasks.pids(t.Context(), &message.ContainerRequest{ID: id})
	_, resume := tasks.resume(t.Context(), &message.ContainerRequest{ID: id})
	request, err := encoded(api.AttachRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	_, attach := extraAPI(tasks).attach(t.Context(), request)
	for what, err := range map[string]error{"exec": exec, "pids": pids, "resume": resume, "attach": attach} {
		if !errdefs.IsFailedPrecondition(err) || strings.Contains(err.Error(), id) || !strings.Contains(err.Error(), "stopped") {
			t.Errorf("%s: %v, want failed precondition, stopped, without an id", what, err)
		}
	}
}

// A runtime that is about to start a command in a container that is killed fails at any step, and
// says so in any words: the end of the container, which follows, is what the caller has to know.
func TestExecInAContainerThatIsBeingKilled(t *testing.T) {
	for _, dies := range []bool{true, false} {
		tasks, _ := newService(&fake{handles: true})
		if _, err := tasks.create(t.Context(), &message.CreateTaskRequest{ID: "x", Bundle: newBundle(t, nil)}); err != nil {
			t.Fatal(err)
		}
		if _, err := tasks.start(t.Context(), &message.ProcessRequest{ID: "x"}); err != nil {
			t.Fatal(err)
		}
		c, err := tasks.s.table.find("x")
		if err != nil {
			t.Fatal(err)
		}
		const words = "read init-p: connection reset by peer"
		c.engine.(*fakeContainer).exec = &fakeProcess{exited: make(chan struct{}), stuck: errors.New(words)}
		if _, err := tasks.exec(t.Context(), &message.ExecProcessRequest{ID: "x", ExecID: "e", Spec: &message.Any{Value: []byte(`{"args":["true"]}`)}}); err != nil {
			t.Fatal(err)
		}
		if dies {
			time.AfterFunc(20*time.Millisecond, func() { _ = c.init.engine.Signal(context.Background(), syscall.SIGKILL, true) })
		}
		_, err = tasks.start(t.Context(), &message.ProcessRequest{ID: "x", ExecID: "e"})
		if _, err := tasks.wait(t.Context(), &message.ProcessRequest{ID: "x", ExecID: "e"}); err != nil {
			t.Errorf("wait for what did not start: %v", err)
		}
		switch {
		case dies && (!errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "the container is stopped")):
			t.Errorf("exec in a container that dies: %v, want failed precondition", err)
		case !dies && (err == nil || err.Error() != words):
			t.Errorf("exec in a container that runs on: %v, want %q", err, words)
		}
	}
}

func TestLaunchThatCannotStartLeavesNothing(t *testing.T) {
	tasks, events := newService(&fake{handles: true, stuck: errdefs.ErrFailedPrecondition})
	dir := newBundle(t, nil)
	request := &message.CreateTaskRequest{ID: "x", Bundle: dir}
	if _, err := tasks.launch(t.Context(), request); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("launch: %v, want failed precondition", err)
	}
	if _, err := tasks.state(t.Context(), &message.ProcessRequest{ID: "x"}); !errdefs.IsNotFound(err) {
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
	if err != nil || json.Unmarshal([]byte(answer.Value), &l) != nil || l.PID != os.Getpid() || l.StartedAt.IsZero() {
		t.Errorf("launch: %v, %v", answer, err)
	}
	if want := []string{"/tasks/create", "/tasks/start"}; !slices.Equal(events.topics, want) {
		t.Errorf("events %q, want %q", events.topics, want)
	}
}
