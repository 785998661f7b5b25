package events

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
)

// node is a pair of real stores that a hub follows.
type node struct {
	t          *testing.T
	hub        *Hub
	sandboxes  *state.Store[state.Sandbox]
	containers *state.Store[state.Container]
}

func newNode(t *testing.T, dir string) *node {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	hub := New(Options{
		SandboxStatus: func(r state.Sandbox) *runtime.PodSandboxStatus {
			s := runtime.PodSandboxState_SANDBOX_NOTREADY
			if r.Phase == state.Ready {
				s = runtime.PodSandboxState_SANDBOX_READY
			}
			return &runtime.PodSandboxStatus{Id: r.ID, State: s}
		},
		ContainerStatus: func(r state.Container) *runtime.ContainerStatus {
			return &runtime.ContainerStatus{Id: r.ID, Reason: string(r.Phase)}
		},
		Logger: quiet,
	})
	n := &node{t: t, hub: hub}
	var err error
	if n.sandboxes, err = state.Open(dir+"/sandboxes", quiet, nil, hub.Sandbox); err != nil {
		t.Fatal(err)
	}
	if n.containers, err = state.Open(dir+"/containers", quiet, nil, hub.Container); err != nil {
		t.Fatal(err)
	}
	return n
}

// sandbox and container move a record on; "" deletes it.
func (n *node) sandbox(id string, phases ...state.Phase) {
	n.t.Helper()
	for _, phase := range phases {
		change := func(r state.Sandbox) (state.Sandbox, error) { r.Phase = phase; return r, nil }
		var err error
		switch phase {
		case state.Creating:
			err = n.sandboxes.Create(id, state.Sandbox{ID: id, Phase: phase})
		case "":
			err = n.sandboxes.Delete(id)
		default:
			_, err = n.sandboxes.Update(id, change)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *node) container(sandbox, id string, phases ...state.Phase) {
	n.t.Helper()
	for _, phase := range phases {
		change := func(r state.Container) (state.Container, error) { r.Phase = phase; return r, nil }
		var err error
		switch phase {
		case state.Creating:
			err = n.containers.Create(id, state.Container{ID: id, SandboxID: sandbox, Phase: phase, CreatedAt: time.Now()})
		case "":
			err = n.containers.Delete(id)
		default:
			_, err = n.containers.Update(id, change)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *node) subscribe() *Subscription {
	n.t.Helper()
	s, err := n.hub.Subscribe()
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(s.Close)
	return s
}

// pending renders what a subscriber has not taken yet.
func pending(s *Subscription) []string {
	var out []string
	for {
		select {
		case e, ok := <-s.Events():
			if !ok {
				return append(out, "end")
			}
			out = append(out, render(e))
		default:
			return out
		}
	}
}

func render(e *runtime.ContainerEventResponse) string {
	kind := strings.TrimSuffix(strings.TrimPrefix(e.GetContainerEventType().String(), "CONTAINER_"), "_EVENT")
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s", e.GetContainerId(), kind, strings.TrimPrefix(e.GetPodSandboxStatus().GetState().String(), "SANDBOX_"))
	for _, c := range e.GetContainersStatuses() {
		fmt.Fprintf(&b, " %s=%s", c.GetId(), c.GetReason())
	}
	return b.String()
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLifeOfAPod(t *testing.T) {
	n := newNode(t, t.TempDir())
	s, second := n.subscribe(), n.subscribe()
	n.sandbox("pod", state.Creating, state.Ready)
	n.container("pod", "a", state.Creating, state.Created, state.Running)
	n.container("pod", "b", state.Creating, state.Created)
	n.container("pod", "a", state.Running, state.Unknown, state.Running, state.Exited)
	n.container("pod", "b", "")
	n.container("pod", "a", "")
	n.sandbox("pod", state.NotReady, state.Stopped, "")
	want := []string{
		"pod CREATED: READY", "pod STARTED: READY",
		"a CREATED: READY a=created", "a STARTED: READY a=running",
		"b CREATED: READY a=running b=created",
		"a STOPPED: READY a=exited b=created",
		"b DELETED: READY a=exited", "a DELETED: READY",
		"pod STOPPED: NOTREADY", "pod DELETED: NOTREADY",
	}
	expect(t, pending(s), want...)
	expect(t, pending(second), want...)
	if len(n.hub.pods) > 0 {
		t.Errorf("the hub still knows %v", n.hub.pods)
	}
}

func TestWhatWasNeverThere(t *testing.T) {
	n := newNode(t, t.TempDir())
	s := n.subscribe()
	n.sandbox("gone", state.Creating, "")
	n.sandbox("stuck", state.Creating, state.NotReady, "")
	n.sandbox("pod", state.Creating, state.Ready)
	n.container("pod", "a", state.Creating, "")
	n.container("pod", "b", state.Creating, state.Created, state.Exited)
	n.container("nowhere", "c", state.Creating, state.Created)
	expect(t, pending(s),
		"stuck CREATED: NOTREADY", "stuck STOPPED: NOTREADY", "stuck DELETED: NOTREADY",
		"pod CREATED: READY", "pod STARTED: READY",
		"b CREATED: READY b=created", "b STOPPED: READY b=exited",
	)
}

// After a restart only what changes is told, with all that was there before in the statuses.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	n.sandbox("pod", state.Creating, state.Ready)
	n.container("pod", "a", state.Creating, state.Created, state.Running)
	n = newNode(t, dir)
	n.container("pod", "a", state.Exited)
	expect(t, pending(n.subscribe()), "a STOPPED: READY a=exited")
}

func TestKeptForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, t.TempDir())
		defer n.hub.Close()
		n.sandbox("old", state.Creating, state.Ready)
		time.Sleep(keepFor / 2)
		n.sandbox("new", state.Creating, state.Ready)
		time.Sleep(keepFor/2 + time.Second)
		synctest.Wait()
		first := n.subscribe()
		expect(t, pending(first), "new CREATED: READY", "new STARTED: READY")
		expect(t, pending(n.subscribe()))
	})
}

func TestKeptIsBounded(t *testing.T) {
	n := newNode(t, t.TempDir())
	n.sandbox("pod", state.Creating)
	for range maxKept {
		n.hub.Sandbox(&state.Sandbox{ID: "pod", Phase: state.Creating}, &state.Sandbox{ID: "pod", Phase: state.Ready})
	}
	n.hub.Sandbox(&state.Sandbox{ID: "pod", Phase: state.Ready}, &state.Sandbox{ID: "pod", Phase: state.Stopped})
	got := pending(n.subscribe())
	if len(got) != maxKept || got[len(got)-1] != "pod STOPPED: NOTREADY" {
		t.Errorf("%d events, the last %q", len(got), got[len(got)-1])
	}
	n.hub.Close()
}

func TestSlowSubscriberIsEnded(t *testing.T) {
	n := newNode(t, t.TempDir())
	slow, quick := n.subscribe(), n.subscribe()
	for range maxQueued {
		n.hub.Sandbox(&state.Sandbox{ID: "pod", Phase: state.Ready}, &state.Sandbox{ID: "pod", Phase: state.Stopped})
		<-quick.Events()
	}
	n.hub.Sandbox(&state.Sandbox{ID: "pod", Phase: state.Stopped}, nil)
	if got := pending(slow); len(got) != maxQueued+1 || got[maxQueued] != "end" {
		t.Errorf("the slow one got %d events", len(got))
	}
	if !errdefs.IsResourceExhausted(slow.Err()) {
		t.Errorf("the slow one ended with %v", slow.Err())
	}
	expect(t, pending(quick), "pod DELETED: NOTREADY")
	n.hub.Close()
	expect(t, pending(quick), "end")
	if !errdefs.IsUnavailable(quick.Err()) {
		t.Errorf("the other ended with %v", quick.Err())
	}
	if _, err := n.hub.Subscribe(); !errdefs.IsUnavailable(err) {
		t.Errorf("subscribe after the end: %v", err)
	}
}

// Side by side, each container's events stay in order and no event shows less than one before it.
func TestOrderUnderLoad(t *testing.T) {
	n := newNode(t, t.TempDir())
	s := n.subscribe()
	n.sandbox("pod", state.Creating, state.Ready)
	var all sync.WaitGroup
	const containers = 20
	for i := range containers {
		all.Go(func() {
			n.container("pod", fmt.Sprint("c", i), state.Creating, state.Created, state.Running, state.Exited, "")
		})
	}
	all.Wait()
	rank := map[string]int{"created": 1, "running": 2, "exited": 3}
	seen, kinds := map[string]int{}, map[string]int{}
	last := int64(0)
	for range 2 + 4*containers {
		e := <-s.Events()
		if e.GetCreatedAt() <= last {
			t.Fatalf("time %d after %d", e.GetCreatedAt(), last)
		}
		last = e.GetCreatedAt()
		if kind := int(e.GetContainerEventType()); e.GetContainerId() != "pod" {
			if kind != kinds[e.GetContainerId()] {
				t.Errorf("%s: event %d, want %d", e.GetContainerId(), kind, kinds[e.GetContainerId()])
			}
			kinds[e.GetContainerId()]++
		}
		for _, c := range e.GetContainersStatuses() {
			if now := rank[c.GetReason()]; now < seen[c.GetId()] {
				t.Errorf("%s is %s again", c.GetId(), c.GetReason())
			} else {
				seen[c.GetId()] = now
			}
		}
	}
}
