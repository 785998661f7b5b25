package container

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/shim/client"
)

// records returns a manager that can do no more than keep records.
func records(t *testing.T) *Manager {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	store, err := state.Open(t.TempDir(), logger, state.CheckContainer, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Manager{index: newIndex(store), o: Options{Logger: logger}, names: state.NewNames()}
}

func (m *Manager) put(t *testing.T, id string, phase state.Phase) *Container {
	t.Helper()
	rec := state.Container{
		ID: id, SandboxID: "s", Phase: phase,
		Config: state.ContainerConfig{Value: &runtime.ContainerConfig{Metadata: &runtime.ContainerMetadata{Name: "name of " + id}}},
	}
	if err := m.records.Create(id, rec); err != nil {
		t.Fatal(err)
	}
	c := newContainer(m.records, rec, m.o.Logger)
	m.add(c)
	return c
}

// A start that comes while a removal ends finds no record, but the removal.
func TestRefusalDuringARemovalHasTheName(t *testing.T) {
	m := records(t)
	c := m.put(t, "c", state.Exited)
	_, end, err := c.claim("remove", state.Exited)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if err := m.records.Drop("c"); err != nil {
		t.Fatal(err)
	}
	_, _, err = c.claim("start", state.Created)
	if want := `start container "name of c": a request to remove it is in progress: failed precondition`; err == nil || err.Error() != want {
		t.Errorf("refused with %v, want %s", err, want)
	}
}

// A removal that comes while another one is in progress waits for it, and is no error: clients that
// heard nothing in time ask again, and RemoveContainer is idempotent.
func TestRemovalsAtOnce(t *testing.T) {
	m := records(t)
	c := m.put(t, "c", state.Exited)
	_, end, err := c.claim("remove", state.Exited)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Remove(t.Context(), "c") }()
	select {
	case err := <-done:
		t.Errorf("the second removal did not wait for the first: %v", err)
		done <- nil
	case <-time.After(10 * time.Millisecond):
	}
	if err := m.records.Drop("c"); err != nil {
		t.Fatal(err)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestOnlyDrawnMovesAreMade(t *testing.T) {
	phases := []state.Phase{state.Creating, state.Created, state.Running, state.Exited, state.Unknown}
	allowed := map[[2]state.Phase]bool{
		{state.Creating, state.Created}: true, {state.Created, state.Running}: true, {state.Created, state.Exited}: true,
		{state.Running, state.Exited}: true, {state.Running, state.Unknown}: true,
		{state.Unknown, state.Running}: true, {state.Unknown, state.Exited}: true,
	}
	for _, from := range phases {
		for _, to := range phases {
			m := records(t)
			c := &Container{ID: "c", records: m.records, log: m.o.Logger}
			// Unknown is never on the disk, so the record is put there as Running first.
			first := from
			if from == state.Unknown {
				first = state.Running
			}
			m.put(t, "c", first)
			if from == state.Unknown {
				if _, err := m.records.Amend("c", c.mover(from, func(*state.Container) {})); err != nil {
					t.Fatal(err)
				}
			}
			_, err := c.move(to, func(*state.Container) {})
			if allowed[[2]state.Phase{from, to}] != (err == nil) {
				t.Errorf("%s to %s: %v", from, to, err)
			}
			if err != nil && !errdefs.IsFailedPrecondition(err) {
				t.Errorf("%s to %s: class of %v", from, to, err)
			}
		}
	}
}

func TestOneRequestAtATime(t *testing.T) {
	m := records(t)
	c := m.put(t, "c", state.Created)
	_, end, err := c.claim("start", state.Created)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.claim("remove", state.Created); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("second request: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- m.Stop(t.Context(), "c", 0) }()
	select {
	case <-done:
		t.Error("a stop did not wait for the start")
	case <-time.After(10 * time.Millisecond):
	}
	end()
	end() // harmless
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, _, err := c.claim("start", state.Running); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("wrong state: %v", err)
	}
	if _, end, err := c.claim("start", state.Created); err != nil {
		t.Errorf("the refused request kept the right: %v", err)
	} else {
		end()
	}
}

func TestTheEndIsKept(t *testing.T) {
	m := records(t)
	c := m.put(t, "c", state.Running)
	at := time.Unix(5, 0)
	c.exit(toEnding(client.Exit{Code: 3, At: at, Message: "boom"}))
	c.exit(ending{code: 9, at: at}) // a second end changes nothing
	rec, err := m.Get("c")
	if err != nil || rec.Phase != state.Exited || rec.ExitCode != 3 || rec.Reason != "Error" || rec.Message != "boom" || !rec.FinishedAt.Equal(at) {
		t.Errorf("%+v, %v", rec, err)
	}
}

func TestTheEndIsKeptWithoutADisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	logger := slog.New(slog.DiscardHandler)
	store, err := state.Open(dir, logger, state.CheckContainer, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &Manager{index: newIndex(store), o: Options{Logger: logger}}
	c := m.put(t, "c", state.Running)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	c.exit(ending{code: 3, at: time.Now(), reason: reasonError})
	if rec, err := m.Get("c"); err != nil || rec.Phase != state.Exited || rec.ExitCode != 3 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// No removal is answered while a power cut may take it back: also not that of a container which a
// request before has dropped that removes its pod. With the pod, it waits for the pod's removal.
func TestRemovalsAreSettled(t *testing.T) {
	told := 0
	logger := slog.New(slog.DiscardHandler)
	store, err := state.Open(t.TempDir(), logger, state.CheckContainer, func(_, after *state.Container) {
		if after == nil {
			told++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &Manager{index: newIndex(store), o: Options{Logger: logger}}
	for name, remove := range map[string]func() error{
		"of a container": func() error { return m.Remove(t.Context(), "c") },
		"of all of a pod": func() error {
			err := m.RemoveAll(t.Context(), "s")
			if m.Removed("another"); told != 0 {
				t.Error("it is told before the pod's removal is durable")
			}
			m.Removed("s")
			return err
		},
	} {
		m.put(t, "c", state.Created)
		if err := m.records.Drop("c"); err != nil || told != 0 {
			t.Fatalf("%v, told %d times", err, told)
		}
		m.drop("c")
		if err := remove(); err != nil || told != 1 {
			t.Errorf("%s: %v, told %d times", name, err, told)
		}
		told = 0
	}
}

func TestReasons(t *testing.T) {
	for _, c := range []struct {
		exit   client.Exit
		reason string
	}{
		{client.Exit{}, "Completed"}, {client.Exit{Code: 1}, "Error"}, {client.Exit{Code: 137}, "Error"},
		{client.Exit{Code: 137, OOMKilled: true}, "OOMKilled"},
	} {
		if got := toEnding(c.exit); got.reason != c.reason {
			t.Errorf("%+v: %s", c.exit, got.reason)
		}
	}
}

func TestSignals(t *testing.T) {
	for text, want := range map[string]syscall.Signal{
		"SIGTERM": 15, "term": 15, "15": 15, "9": 9, "SIGRTMIN": 34, "SIGRTMIN+3": 37, "RTMAX-1": 63, "SIGRTMAX": 64,
		"SIGCLD": 17, "SIGPOLL": 29, "SIGSTKFLT": 16,
		"": 0, "0": 0, "65": 0, "SIGWAT": 0, "SIGRTMIN+99": 0, "SIGRTMINx": 0, "-1": 0,
	} {
		got, err := parseSignal(text)
		if got != want || (want == 0) != (err != nil) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	// Every signal of the CRI is understood and reported as itself, but for its two second names.
	for n, name := range runtime.Signal_name {
		sig := runtime.Signal(n)
		text := stopSignal(sig, "")
		if sig == runtime.Signal_SIGNAL_RUNTIME_DEFAULT {
			if text != "SIGTERM" {
				t.Errorf("default: %q", text)
			}
			continue
		}
		want := sig
		switch sig {
		case runtime.Signal_SIGNAL_SIGCLD:
			want = runtime.Signal_SIGNAL_SIGCHLD
		case runtime.Signal_SIGNAL_SIGPOLL, runtime.Signal_SIGNAL_SIGIO:
			want = Signal("SIGIO")
		case runtime.Signal_SIGNAL_SIGIOT, runtime.Signal_SIGNAL_SIGABRT:
			want = Signal("SIGABRT")
		}
		if got := Signal(text); got != want {
			t.Errorf("%s: %q is reported as %s", name, text, got)
		}
	}
	if got := stopSignal(runtime.Signal_SIGNAL_SIGINT, "SIGQUIT"); got != "SIGINT" {
		t.Errorf("configuration before image: %q", got)
	}
	if got := stopSignal(0, "SIGQUIT"); got != "SIGQUIT" {
		t.Errorf("image: %q", got)
	}
	if got := stopSignal(0, "nonsense"); got != "SIGTERM" {
		t.Errorf("nonsense: %q", got)
	}
}

func TestMerge(t *testing.T) {
	old := &runtime.LinuxContainerResources{
		CpuShares: 10, MemoryLimitInBytes: 100, CpusetCpus: "0", Unified: map[string]string{"a": "1", "b": "2"},
		HugepageLimits: []*runtime.HugepageLimit{{PageSize: "2MB", Limit: 1}},
	}
	before := proto.Clone(old)
	got := merge(old, &runtime.LinuxContainerResources{CpuShares: 20, CpuQuota: -1, Unified: map[string]string{"b": "3"}})
	want := &runtime.LinuxContainerResources{
		CpuShares: 20, CpuQuota: -1, MemoryLimitInBytes: 100, CpusetCpus: "0", Unified: map[string]string{"a": "1", "b": "3"},
		HugepageLimits: []*runtime.HugepageLimit{{PageSize: "2MB", Limit: 1}},
	}
	if !proto.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if !proto.Equal(old, before) {
		t.Errorf("the old value was changed: %v", old)
	}
	if got := merge(nil, want); !proto.Equal(got, want) {
		t.Errorf("from nothing: %v", got)
	}
	huge := []*runtime.HugepageLimit{{PageSize: "1GB", Limit: 2}}
	if got := merge(old, &runtime.LinuxContainerResources{HugepageLimits: huge}); len(got.GetHugepageLimits()) != 1 || got.GetHugepageLimits()[0].GetPageSize() != "1GB" {
		t.Errorf("huge pages: %v", got)
	}
}

// A change of limits that fails because its container ends has left nothing behind, and says so.
func TestTakeBackOfAContainerThatHasEnded(t *testing.T) {
	var logged strings.Builder
	for _, want := range []struct {
		err  error
		told bool
	}{{errdefs.ErrNotFound, false}, {errdefs.ErrFailedPrecondition, false}, {nil, false}, {errdefs.ErrInternal, true}} {
		logged.Reset()
		r := &resizing{
			Container: &Container{log: slog.New(slog.NewTextHandler(&logged, nil))},
			undo:      []func(context.Context) error{func(context.Context) error { return want.err }},
		}
		r.takeBack(t.Context())
		if told := strings.Contains(logged.String(), "failed to take back"); told != want.told {
			t.Errorf("%v: logged %q", want.err, logged.String())
		}
	}
}

func TestImageNames(t *testing.T) {
	img := images.Image{ID: "sha256:i", RepoTags: []string{"a:1", "b:1"}, RepoDigests: []string{"a@sha256:d"}}
	for _, c := range []struct {
		wanted string
		img    images.Image
		want   string
	}{
		{"b:1", img, "b:1"}, {"other:1", img, "a:1"}, {"", img, "a:1"},
		{"x:1", images.Image{ID: "sha256:i"}, "x:1"}, {"", images.Image{ID: "sha256:i", RepoDigests: img.RepoDigests}, "a@sha256:d"},
	} {
		config := &runtime.ContainerConfig{Image: &runtime.ImageSpec{Image: "sha256:i", UserSpecifiedImage: c.wanted}}
		if got := imageName(c.img, config); got != c.want {
			t.Errorf("%q: %q, want %q", c.wanted, got, c.want)
		}
	}
}

// Whatever the clock does, a newer attempt is the newer one, and no container ends before it
// started. An end is never later than it was: clients count from it.
func TestTimesWithTheClockSetBack(t *testing.T) {
	m := records(t)
	ahead := time.Now().Add(time.Hour)
	c := m.put(t, "c", state.Running)
	if _, err := m.records.Update("c", func(r state.Container) (state.Container, error) {
		r.CreatedAt, r.StartedAt = ahead, ahead.Add(time.Second)
		return r, nil
	}); err != nil {
		t.Fatal(err)
	}
	if at := m.created("s"); !at.After(ahead) || at.Sub(ahead) > time.Second {
		t.Errorf("the next attempt is created at %v, after one of %v", at, ahead)
	}
	if at := m.created("another"); at.After(time.Now()) {
		t.Errorf("a container of another pod is created at %v", at)
	}
	end := time.Now()
	c.exit(ending{code: 3, at: end, reason: reasonError})
	if r, err := m.records.Get("c"); err != nil || !r.FinishedAt.Equal(end) || r.StartedAt.After(end) {
		t.Errorf("started at %v, ended at %v, which was %v; %v", r.StartedAt, r.FinishedAt, end, err)
	}
}
