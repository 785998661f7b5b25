package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/ociruntime"
	"github.com/sunaba-project/sunaba/criserver/spec/facts"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/criserver/stats"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/tests/binaries"
)

// patience is how long is waited for what is to come. It only bounds a failure.
const patience = time.Minute

// shimBinary is one for all tests.
var shimBinary string

func TestMain(m *testing.M) { os.Exit(withShim(m)) }

func withShim(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("the tests of sandboxes need root: they make namespaces, mounts and cgroups")
		return 1
	}
	dir, err := os.MkdirTemp("", "sunaba-sandbox-test-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := binaries.Provide(dir, binaries.Shim); err != nil {
		fmt.Println(err)
		return 1
	}
	shimBinary = filepath.Join(dir, binaries.Shim)
	return m.Run()
}

// ledger is a network that only keeps books, and fails when it is told to. Everything else in these
// tests is real.
type ledger struct {
	mu            sync.Mutex
	setup, remove error
	up            map[string]bool
}

func (l *ledger) Setup(_ context.Context, p network.Pod) (network.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.setup != nil {
		return network.Result{}, l.setup
	}
	l.up[p.ID] = true
	return network.Result{IPs: []netip.Addr{netip.MustParseAddr("10.9.8.7")}, Raw: json.RawMessage(`{"k":1}`), Interface: "eth0"}, nil
}

func (l *ledger) Teardown(_ context.Context, p network.Pod, _ network.Result) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.remove != nil {
		return l.remove
	}
	delete(l.up, p.ID)
	return nil
}

func (l *ledger) fail(setup, remove error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setup, l.remove = setup, remove
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.up)
}

func (l *ledger) Status(context.Context) error       { return nil }
func (l *ledger) GC(context.Context, []string) error { return nil }
func (l *ledger) Close() error                       { return nil }

// world is one machine's place for sandboxes; managers come and go in it.
type world struct {
	t   *testing.T
	net *ledger
	o   Options
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cgroups, err := cgroup.New("cgroupfs")
	if err != nil {
		t.Fatal(err)
	}
	host, err := facts.Host()
	if err != nil {
		t.Fatal(err)
	}
	handlers, err := runtimeclass.NewTable([]runtimeclass.Handler{
		{Name: "runc", Type: runtimeclass.OCI, Binary: "runc", Default: true, ShimScope: runtimeclass.ScopePod},
		{Name: "shared", Type: runtimeclass.OCI, Binary: "runc", ShimScope: runtimeclass.ScopeNode},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := &world{t: t, net: &ledger{up: map[string]bool{}}}
	w.o = Options{
		Handlers: handlers, Network: w.net, Cgroups: cgroups, Host: host, Runtime: ociruntime.Open(ociruntime.Options{}, nil).Of,
		Records: filepath.Join(dir, "records"), Files: filepath.Join(dir, "files"), State: filepath.Join(dir, "state"), Shims: filepath.Join(dir, "shims"),
		Shim: shimBinary, WasmCache: filepath.Join(dir, "wasm"), BootID: "boot1", Logger: slog.New(slog.DiscardHandler),
		CPU: func(path string) (time.Duration, error) {
			used, err := stats.NewReader(cgroups.Mounts).CPU(path)
			return used.Usage, err
		},
	}
	return w
}

func (w *world) manager() *Manager {
	w.t.Helper()
	m, err := New(w.o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { // whatever a failed test has left
		for _, rec := range m.records.List() {
			w.net.fail(nil, nil)
			_ = m.Remove(context.Background(), rec.ID, none, none)
		}
		m.Close()
	})
	return m
}

// restart is a new server after the old one was killed.
func (w *world) restart(old *Manager) *Manager {
	w.t.Helper()
	old.Close()
	m := w.manager()
	m.Recover(w.t.Context(), func(context.Context, *Sandbox, Found, *client.Client) {})
	return m
}

func none(context.Context, string) error { return nil }

func pod(name string, pid runtime.NamespaceMode) *runtime.PodSandboxConfig {
	return &runtime.PodSandboxConfig{
		Metadata: &runtime.PodSandboxMetadata{Name: name, Namespace: "ns", Uid: "u"}, Hostname: name,
		Linux: &runtime.LinuxPodSandboxConfig{SecurityContext: &runtime.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtime.NamespaceOption{Pid: pid},
		}},
	}
}

// nothing checks that no trace of any sandbox is left.
func (w *world) nothing(m *Manager) {
	w.t.Helper()
	if ids := m.records.IDs(); len(ids) > 0 {
		w.t.Errorf("records left: %v", ids)
	}
	for _, dir := range []string{w.o.Files, w.o.State, w.o.Shims} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			w.t.Errorf("left in %s: %v, %v", dir, entries, err)
		}
	}
	if n := w.net.count(); n > 0 {
		w.t.Errorf("%d networks left", n)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, w.o.State) {
			w.t.Errorf("mount left: %s", line)
		}
	}
	w.noShims()
}

func (w *world) noShims() {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		left := w.shims()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Errorf("processes left: %v", left)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// shims are the processes that work in this world.
func (w *world) shims() []string {
	var out []string
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, l := range links {
		if dir, err := os.Readlink(l); err == nil && strings.HasPrefix(dir, filepath.Dir(w.o.State)+"/") {
			out = append(out, l)
		}
	}
	return out
}

// awaitShims waits until so many processes work in this world. One that is just being started looks
// like its parent.
func (w *world) awaitShims(n int) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); len(w.shims()) != n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("processes %v, want %d", w.shims(), n)
		}
	}
}

func (w *world) phase(m *Manager, id string, want state.Phase) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		rec, err := m.Get(id)
		if err == nil && rec.Phase == want {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("sandbox is %q, %v; want %q", rec.Phase, err, want)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (w *world) run(m *Manager, config *runtime.PodSandboxConfig) string {
	w.t.Helper()
	id, err := m.Run(w.t.Context(), config, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func TestLife(t *testing.T) {
	for _, pid := range []runtime.NamespaceMode{runtime.NamespaceMode_CONTAINER, runtime.NamespaceMode_POD} {
		t.Run(pid.String(), func(t *testing.T) {
			w := newWorld(t)
			m := w.manager()
			id := w.run(m, pod("a", pid))
			w.phase(m, id, state.Ready)
			if _, err := m.Run(t.Context(), pod("a", pid), ""); !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), id) {
				t.Errorf("second run: %v", err)
			}
			s, err := m.Sandbox(id)
			if err != nil {
				t.Fatal(err)
			}
			if ns := s.Namespaces(pod("a", pid)); ns.Net == "" || ns.IPC == "" || ns.UTS == "" || (ns.PID != "") != (pid == runtime.NamespaceMode_POD) {
				t.Errorf("namespaces: %+v", ns)
			}
			hosts, err := os.ReadFile(s.Files(pod("a", pid)).Hosts)
			if err != nil || !strings.Contains(string(hosts), "10.9.8.7\ta\n") {
				t.Errorf("hosts: %q, %v", hosts, err)
			}
			for range 2 {
				if err := m.Stop(t.Context(), id[:12], none); err != nil {
					t.Fatal(err)
				}
			}
			w.phase(m, id, state.Stopped)
			w.noShims()
			for range 2 {
				if err := m.Remove(t.Context(), id, none, none); err != nil {
					t.Fatal(err)
				}
			}
			w.nothing(m)
			if id := w.run(m, pod("a", pid)); id == "" {
				t.Error("the name is still taken")
			}
		})
	}
}

func TestUnknownIDs(t *testing.T) {
	m := newWorld(t).manager()
	if err := m.Stop(t.Context(), "nope", none); err != nil {
		t.Error(err)
	}
	if err := m.Remove(t.Context(), "nope", none, none); err != nil {
		t.Error(err)
	}
	if _, err := m.Get("nope"); !errdefs.IsNotFound(err) {
		t.Error(err)
	}
	if _, err := m.Run(t.Context(), pod("a", 0), "nope"); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "runc") {
		t.Error(err)
	}
}

func TestAFailedRunIsUndone(t *testing.T) {
	boom := errors.New("boom")
	for name, spoil := range map[string]func(*world){
		"network": func(w *world) { w.net.fail(boom, nil) },
		"shim":    func(w *world) { w.o.Shim = "/nonexistent/shim" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			spoil(w)
			m := w.manager()
			if _, err := m.Run(t.Context(), pod("a", 0), ""); err == nil {
				t.Fatal("no error")
			}
			w.o.Shim = shimBinary
			w.nothing(m)
			w.net.fail(nil, nil)
			if !m.names.Hold(name+"x", "y") || len(m.List()) != 0 {
				t.Error("something is left")
			}
		})
	}
	t.Run("given up", func(t *testing.T) {
		w := newWorld(t)
		m := w.manager()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := m.Run(ctx, pod("a", 0), ""); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		w.nothing(m)
		w.run(m, pod("a", 0))
	})
}

func TestWhatCannotBeUndoneStaysNotReady(t *testing.T) {
	w := newWorld(t)
	w.net.fail(errors.New("up"), errors.New("down"))
	m := w.manager()
	if _, err := m.Run(t.Context(), pod("a", 0), ""); err == nil || !strings.Contains(err.Error(), "up") {
		t.Fatal(err)
	}
	all := m.List()
	if len(all) != 1 || all[0].Phase != state.NotReady {
		t.Fatalf("%+v", all)
	}
	if err := m.Stop(t.Context(), all[0].ID, none); err == nil {
		t.Error("a stop that could not tear the network down says it did")
	}
	w.net.fail(nil, nil)
	if err := m.Remove(t.Context(), all[0].ID, none, none); err != nil {
		t.Fatal(err)
	}
	w.nothing(m)
}

// No removal is answered while a power cut may take it back, also not one that was made before.
// The newer sandbox of a pod is created later, whatever the clock does.
func TestCreatedWithTheClockSetBack(t *testing.T) {
	m := newWorld(t).manager()
	ahead := time.Now().Add(time.Hour)
	config := pod("a", 0)
	if err := m.records.Create("a", state.Sandbox{ID: "a", Phase: state.Stopped, CreatedAt: ahead, Config: state.PodConfig{Value: config}}); err != nil {
		t.Fatal(err)
	}
	if at := m.created(config.GetMetadata().GetUid()); !at.After(ahead) || at.Sub(ahead) > time.Second {
		t.Errorf("the next sandbox is created at %v, after one of %v", at, ahead)
	}
	if at := m.created("another"); at.After(time.Now()) {
		t.Errorf("a sandbox of another pod is created at %v", at)
	}
}

func TestRemovalsAreSettled(t *testing.T) {
	w := newWorld(t)
	told := 0
	w.o.Follow = func(_, after *state.Sandbox) {
		if after == nil {
			told++
		}
	}
	m := w.manager()
	err := m.records.Create("a", state.Sandbox{ID: "a", Phase: state.Ready, Config: state.PodConfig{Value: pod("a", 0)}})
	if err == nil {
		err = m.records.Drop("a")
	}
	if err != nil || told != 0 {
		t.Fatalf("%v, told %d times", err, told)
	}
	if err := m.Remove(t.Context(), "a", none, none); err != nil || told != 1 {
		t.Errorf("%v, told %d times", err, told)
	}
}

// The server may be killed after any step; the next one leaves nothing of what was not finished,
// nor of a sandbox that is ready and not filled with what is restored.
func TestCrashBetweenSteps(t *testing.T) {
	steps := len((&Sandbox{}).working())
	for n := range steps + 2 {
		w := newWorld(t)
		m := w.manager()
		id := state.NewID()
		parent, owned, err := w.o.Cgroups.Pod(id, "")
		if err != nil {
			t.Fatal(err)
		}
		rec := state.Sandbox{
			ID: id, Phase: state.Creating, BootID: "boot1", Config: state.PodConfig{Value: pod("a", 0)},
			HandlerName: "runc", HandlerType: "oci", CgroupParent: parent, CgroupOwned: owned, Network: state.Network{Up: true},
			Restoring: n > steps,
		}
		s := newSandbox(m, rec)
		s.record.first = rec
		m.add(s)
		if _, err := do(t.Context(), w.o.Logger, s.lasting()); err != nil {
			t.Fatal(err)
		}
		if _, err := do(t.Context(), w.o.Logger, s.working()[:min(n, steps)]); err != nil {
			t.Fatal(err)
		}
		if n > steps {
			if err := s.record.ready(); err != nil {
				t.Fatal(err)
			}
		}
		next := w.restart(m)
		w.nothing(next)
		if id := w.run(next, pod("a", 0)); next.Remove(t.Context(), id, none, none) != nil {
			t.Error("a sandbox of the same name is not removed")
		}
		if t.Failed() {
			t.Fatalf("after %d steps", n)
		}
	}
}

// A sandbox that is restored has its name from the beginning, and nobody else gets it before it is
// filled.
func TestRestore(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	r := &runtime.RestorePodRequest{CheckpointPath: "/a", Config: pod("a", 0)}
	filling, filled := make(chan string), make(chan error)
	fill := func(_ context.Context, id string) error {
		filling <- id
		return <-filled
	}
	never := func(context.Context, string) error { return errors.New("filled twice") }
	type answer struct {
		id  string
		err error
	}
	begin := func() (id string, end <-chan answer) {
		answers := make(chan answer, 1)
		go func() {
			id, err := m.Restore(context.Background(), r, fill, none, none)
			answers <- answer{id, err}
		}()
		select {
		case id = <-filling:
		case a := <-answers:
			t.Fatal(a.err)
		}
		return id, answers
	}

	id, first := begin()
	if _, err := m.Run(t.Context(), pod("a", 0), ""); !errdefs.IsAlreadyExists(err) {
		t.Errorf("run beside a restore: %v", err)
	}
	other := &runtime.RestorePodRequest{CheckpointPath: "/b", Config: r.Config}
	if _, err := m.Restore(t.Context(), other, never, none, none); !errdefs.IsAlreadyExists(err) {
		t.Errorf("another restore beside it: %v", err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := m.Restore(soon, r, never, none, none); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the same restore once more did not wait for the first: %v", err)
	}
	filled <- nil
	if a := <-first; a.err != nil || a.id != id {
		t.Fatalf("%+v, want %q", a, id)
	}
	w.phase(m, id, state.Ready)
	if _, err := m.Run(t.Context(), pod("a", 0), ""); !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), id) {
		t.Errorf("run after a restore: %v", err)
	}
	if m = w.restart(m); m.Remove(t.Context(), id, none, none) != nil {
		t.Error("a restored sandbox is not there after a restart")
	}
	w.nothing(m)

	_, failing := begin()
	filled <- errdefs.ErrInvalidArgument
	if a := <-failing; !errdefs.IsInvalidArgument(a.err) {
		t.Errorf("what cannot be filled: %v", a.err)
	}
	w.nothing(m)

	id, removed := begin()
	if err := m.Remove(t.Context(), id, none, none); err != nil {
		t.Error(err)
	}
	filled <- nil
	if a := <-removed; a.err == nil {
		t.Error("a sandbox that was removed meanwhile is answered for")
	}
	w.nothing(m)
}

func TestRestart(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	id := w.run(m, pod("a", runtime.NamespaceMode_POD))
	w.awaitShims(1)
	next := w.restart(m)
	w.phase(next, id, state.Ready)
	s, err := next.Sandbox(id)
	if err != nil || s.Shim() == nil || s.PausePID() == 0 {
		t.Fatalf("%v, shim %v, pause %d", err, s.Shim(), s.PausePID())
	}
	w.awaitShims(1)
	if _, err := next.Run(t.Context(), pod("a", runtime.NamespaceMode_POD), ""); !errdefs.IsAlreadyExists(err) {
		t.Errorf("the name is free after a restart: %v", err)
	}
	if err := next.Remove(t.Context(), id, none, none); err != nil {
		t.Fatal(err)
	}
	w.nothing(next)
}

func TestReboot(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	id := w.run(m, pod("a", 0))
	// What a reboot does: processes and mounts are gone, and the folder of the state.
	if err := m.Stop(t.Context(), id, none); err != nil {
		t.Fatal(err)
	}
	if _, err := m.records.Update(id, func(r state.Sandbox) (state.Sandbox, error) {
		r.Phase, r.Network.Up = state.Ready, true
		return r, nil
	}); err != nil {
		t.Fatal(err)
	}
	w.net.up[id] = true
	if err := os.RemoveAll(w.o.State); err != nil {
		t.Fatal(err)
	}
	w.o.BootID = "boot2"
	m.Close()
	next := w.manager()
	var found Found = -1
	next.Recover(t.Context(), func(_ context.Context, _ *Sandbox, f Found, _ *client.Client) { found = f })
	w.phase(next, id, state.NotReady)
	if found != Ended || w.net.count() != 0 || len(next.Connected()) != 0 {
		t.Errorf("found %d, %d networks, connected %v", found, w.net.count(), next.Connected())
	}
	if err := next.Remove(t.Context(), id, none, none); err != nil {
		t.Fatal(err)
	}
	w.nothing(next)
}

// A damaged record takes its pod down, and no other.
func TestDamagedRecord(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	bad, good := w.run(m, pod("bad", 0)), w.run(m, pod("good", 0))
	l, err := state.Read(w.o.Records, state.CheckSandbox)
	if err == nil {
		err = os.WriteFile(filepath.Join(w.o.Records, l.Files[bad]), []byte("}"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	next := w.restart(m)
	w.phase(next, good, state.Ready)
	if entries, _ := os.ReadDir(w.o.State); len(entries) != 1 || entries[0].Name() != good {
		t.Errorf("left: %v", entries)
	}
	w.net.up = map[string]bool{} // garbage collection is the network's
	if err := next.Remove(t.Context(), good, none, none); err != nil {
		t.Fatal(err)
	}
	w.nothing(next)
}

// A shim that was found may die while its sandbox's containers are looked at.
func TestShimDeathDuringRecovery(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	id := w.run(m, pod("a", 0))
	m.Close()
	next := w.manager()
	next.Recover(t.Context(), func(ctx context.Context, s *Sandbox, found Found, shim *client.Client) {
		if found != Living || shim == nil {
			t.Fatalf("found %d, shim %v", found, shim)
		}
		if err := syscall.Kill(shim.PID(), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		<-s.Cleaned()
		if _, err := shim.State(ctx, "c", ""); s.Shim() != nil || !errdefs.IsUnavailable(err) {
			t.Errorf("the sandbox has shim %v, and the dead one answers %v", s.Shim(), err)
		}
	})
	w.phase(next, id, state.NotReady)
	if err := next.Remove(t.Context(), id, none, none); err != nil {
		t.Fatal(err)
	}
	w.nothing(next)
}

func TestShimDeath(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	id := w.run(m, pod("a", runtime.NamespaceMode_POD))
	s, err := m.Sandbox(id)
	if err != nil {
		t.Fatal(err)
	}
	for range cap(m.turns) { // other sandboxes are cleaned up after
		m.turns <- struct{}{}
	}
	if err := syscall.Kill(s.Shim().PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.phase(m, id, state.NotReady)
	select {
	case <-s.Cleaned():
		t.Error("it was not its turn")
	default:
	}
	for range cap(m.turns) {
		<-m.turns
	}
	select {
	case <-s.Cleaned():
	case <-time.After(patience):
		t.Error("nobody was told")
	}
	if _, _, err := s.Use(); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("use: %v", err)
	}
	if err := m.Remove(t.Context(), id, none, none); err != nil {
		t.Fatal(err)
	}
	w.nothing(m)
}

func TestPauseDeath(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	id := w.run(m, pod("a", runtime.NamespaceMode_POD))
	s, err := m.Sandbox(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.PausePID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.phase(m, id, state.NotReady)
	if err := m.Remove(t.Context(), id, none, none); err != nil {
		t.Fatal(err)
	}
	w.nothing(m)
}

// A shim that hangs costs the start its ten seconds and nothing else; its sandbox can be stopped.
func TestSilentShim(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	silent, good := w.run(m, pod("silent", 0)), w.run(m, pod("good", 0))
	s, err := m.Sandbox(silent)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.Shim().PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped(t, s.Shim().PID())
	begun := time.Now()
	next := w.restart(m)
	if took := time.Since(begun); took > 2*limit-time.Second { // once, and not twice
		t.Errorf("recovery took %s", took)
	}
	w.phase(next, silent, state.NotReady)
	w.phase(next, good, state.Ready)
	for _, id := range []string{silent, good} {
		if err := next.Remove(t.Context(), id, none, none); err != nil {
			t.Fatal(err)
		}
	}
	w.nothing(next)
}

// stopped waits until SIGSTOP has reached a process.
func stopped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if _, after, ok := strings.Cut(string(stat), ") "); ok && strings.HasPrefix(after, "T") {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the process does not stop")
}

func TestStopWaitsForUsers(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	id := w.run(m, pod("a", 0))
	s, err := m.Sandbox(id)
	if err != nil {
		t.Fatal(err)
	}
	_, release, err := s.Use()
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := m.Stop(short, id, none); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop with a user inside: %v", err)
	}
	if _, _, err := s.Use(); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a new user was let in: %v", err)
	}
	release()
	if err := m.Remove(t.Context(), id, none, none); err != nil {
		t.Fatal(err)
	}
	w.nothing(m)
}

func TestResolvConf(t *testing.T) {
	config := pod("a", 0)
	config.DnsConfig = &runtime.DNSConfig{Servers: []string{"10.0.0.1", "10.0.0.2"}, Searches: []string{"a", "b"}, Options: []string{"ndots:5"}}
	got, err := resolvConf(config, true)
	if want := "search a b\nnameserver 10.0.0.1\nnameserver 10.0.0.2\noptions ndots:5\n"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	for text, want := range map[string]bool{
		"": false, "nameserver 127.0.0.53\noptions edns0\n": true, "nameserver 127.0.0.1\nnameserver 10.0.0.1\n": false,
		"nameserver ::1\n": true, "# nameserver 127.0.0.1\n": false,
	} {
		if onlyLoopback(text) != want {
			t.Errorf("%q", text)
		}
	}
}

func TestHosts(t *testing.T) {
	got := hosts("h", []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")})
	if !strings.HasSuffix(got, "10.0.0.1\th\nfd00::1\th\n") || !strings.HasPrefix(got, "127.0.0.1\tlocalhost\n") {
		t.Errorf("%q", got)
	}
	if got := hosts("node", nil); !strings.Contains(got, "\tnode\n") {
		t.Errorf("%q", got)
	}
}

var _ network.Network = (*ledger)(nil)
