package shims

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/client"
)

// world is a set of shims with cgroups of its own, in which time is what the test says.
type world struct {
	*Set
	t    *testing.T
	used time.Duration // CPU time of each shared shim
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cgroups, err := cgroup.New("cgroupfs")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	dir := t.TempDir()
	w.Set, err = New(Options{
		Layout: Layout{Pods: filepath.Join(dir, "pods"), Shared: filepath.Join(dir, "shims"), Cgroups: cgroups},
		CPU:    func(string) (time.Duration, error) { return w.used, nil },
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// running gives a handler a shim that nobody has to start: a connection that leads nowhere.
func (w *world) running(handler string) *shared {
	w.t.Helper()
	one := w.ofHandler(handler)
	one.client = new(client.Client)
	if err := os.MkdirAll(one.dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	return one
}

func (w *world) acquire(pods ...state.Sandbox) {
	w.t.Helper()
	for _, pod := range pods {
		if _, err := w.Acquire(w.t.Context(), pod); err != nil {
			w.t.Fatal(err)
		}
	}
}

func sharing(id, handler string) state.Sandbox {
	return state.Sandbox{ID: id, HandlerName: handler, ShimScope: runtimeclass.ScopeNode, CgroupParent: "/sunaba-test-shims"}
}

// charged is what a pod pays for its part of the shim, and how many share it.
func (w *world) charged(pod state.Sandbox) (time.Duration, int) {
	w.t.Helper()
	cost := w.Cost(pod, nil)
	if len(cost) != 2 || cost[0].Name != "shim" || cost[1].Name != "supervisor" || cost[0].Pods != cost[1].Pods || cost[1].CPU != 0 {
		w.t.Fatalf("cost %+v, want that of a shim and its supervisor", cost)
	}
	return cost[0].CPU, cost[0].Pods
}

func TestPodsOfAHandlerShareAShim(t *testing.T) {
	w := newWorld(t)
	one := w.running("h")
	a, b := sharing("a", "h"), sharing("b", "h")
	w.acquire(a, b, b) // a pod that asks twice holds it once
	if _, pods := w.charged(a); pods != 2 {
		t.Errorf("%d pods share the shim, want 2", pods)
	}
	if c := w.ofHandler("other"); c == one || c.leaf == one.leaf || c.dir == one.dir {
		t.Errorf("another handler has the shim in %s and %s", c.dir, c.leaf)
	}
	if err := w.Release(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
	if one.connection() == nil || one.has("a") || !one.has("b") {
		t.Error("the shim has ended, and a pod holds it")
	}
	if cost := w.Cost(a, nil); cost != nil {
		t.Errorf("a pod that has released the shim pays %+v", cost)
	}
	if err := w.Release(t.Context(), a, nil); err != nil || one.connection() == nil {
		t.Errorf("released twice: %v", err)
	}
	if err := w.Release(t.Context(), b, nil); err != nil {
		t.Fatal(err)
	}
	if one.connection() != nil || one.count() != 0 {
		t.Error("no pod holds the shim, and it has not ended")
	}
	if _, err := os.Stat(one.dir); err == nil {
		t.Errorf("%s is left of it", one.dir)
	}
}

func TestCostIsDividedAmongThePodsThatAreThere(t *testing.T) {
	w := newWorld(t)
	one := w.running("h")
	a, b, c := sharing("a", "h"), sharing("b", "h"), sharing("c", "h")
	w.acquire(a)
	w.used = 10 * time.Second
	w.acquire(b) // a was alone until now
	w.used = 16 * time.Second
	one.drop("a")
	w.acquire(c)
	w.used = 20 * time.Second
	for _, want := range []struct {
		pod state.Sandbox
		cpu time.Duration
	}{{b, 5 * time.Second}, {c, 2 * time.Second}} {
		if cpu, pods := w.charged(want.pod); cpu != want.cpu || pods != 2 {
			t.Errorf("pod %s pays %v, as one of %d; want %v of 2", want.pod.ID, cpu, pods, want.cpu)
		}
	}
	w.acquire(a)
	if cpu, _ := w.charged(a); cpu != 0 {
		t.Errorf("a pod that has come again pays %v from before", cpu)
	}
}

// After a restart of the server, no pod pays before all of them are there.
func TestCostAfterARestart(t *testing.T) {
	w := newWorld(t)
	one := w.running("h")
	w.used = 30 * time.Second
	one.wait()
	pods := []state.Sandbox{sharing("a", "h"), sharing("b", "h"), sharing("c", "h")}
	for _, pod := range pods {
		if _, err := w.Reacquire(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if cpu, _ := w.charged(pod); cpu != 0 {
			t.Errorf("pod %s pays %v before all are there", pod.ID, cpu)
		}
	}
	one.settle()
	for _, pod := range pods {
		if cpu, _ := w.charged(pod); cpu != 10*time.Second {
			t.Errorf("pod %s pays %v, want a third of what the shim has used", pod.ID, cpu)
		}
	}
}

func TestReacquireStartsNothing(t *testing.T) {
	w := newWorld(t)
	for name, pod := range map[string]state.Sandbox{"shared": sharing("a", "h"), "own": {ID: "a"}} {
		if c, err := w.Reacquire(t.Context(), pod); !errdefs.IsNotFound(err) {
			t.Errorf("%s: %v, %v; want not found", name, c, err)
		}
	}
	if w.ofHandler("h").has("a") {
		t.Error("a pod holds a shim that is gone")
	}
}

func TestAPodWithItsOwnShimPaysForItAlone(t *testing.T) {
	w := newWorld(t)
	w.used = time.Hour
	pod := state.Sandbox{ID: "a", CgroupParent: "/sunaba-test-shims"}
	cost := w.Cost(pod, new(client.Client))
	if !slices.Equal(cost, []Process{{Name: Shim}}) {
		t.Errorf("cost %+v, want the shim, which the pod's cgroup accounts for", cost)
	}
	if w.Cost(pod, nil) != nil {
		t.Error("a pod pays for a shim that is gone")
	}
	if own, shared := w.Layout().Leaf(pod), w.Layout().Leaf(sharing("a", "h")); own == shared || !strings.HasPrefix(own, pod.CgroupParent) {
		t.Errorf("leaves %q and %q, want that of the pod's own shim in its parent", own, shared)
	}
}
