package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/shims"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/runtimeclass"
	"github.com/sunaba-project/sunaba/shim/client"
)

// own is a pod without a pause process: a shared shim has nothing of it.
func own(name string) *runtime.PodSandboxConfig { return pod(name, runtime.NamespaceMode_CONTAINER) }

func (w *world) runShared(m *Manager, config *runtime.PodSandboxConfig) string {
	w.t.Helper()
	id, err := m.Run(w.t.Context(), config, "shared")
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) remove(m *Manager, id string) {
	w.t.Helper()
	if err := m.Remove(w.t.Context(), id, none, none); err != nil {
		w.t.Error(err)
	}
}

func (w *world) shimOf(m *Manager, id string) *client.Client {
	w.t.Helper()
	s, err := m.Sandbox(id)
	if err != nil {
		w.t.Fatal(err)
	}
	c := s.Shim()
	if c == nil {
		w.t.Fatalf("sandbox %q has no shim", id)
	}
	return c
}

// cost is what a sandbox pays for because of its shim.
func (w *world) cost(m *Manager, id string) []shims.Process {
	w.t.Helper()
	s, err := m.Sandbox(id)
	if err != nil {
		w.t.Fatal(err)
	}
	rec, err := m.Get(id)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.ShimCost(rec)
}

// shared is a sandbox's part of a shim that it shares.
func (w *world) shared(m *Manager, rec state.Sandbox) shims.Process {
	w.t.Helper()
	cost := w.cost(m, rec.ID)
	if len(cost) != 2 || cost[0].Name != shims.Shim || cost[1].Name != shims.Supervisor {
		w.t.Fatalf("cost is %+v; want that of a shim and its supervisor", cost)
	}
	return cost[0]
}

// sharedCgroup is where the cgroup of the shared shim is.
func (w *world) sharedCgroup() string {
	c := w.o.Cgroups
	leaf := shims.Layout{Shared: w.o.Shims, Cgroups: c}.Leaf(state.Sandbox{HandlerName: "shared", ShimScope: runtimeclass.ScopeNode})
	return c.Group(leaf).Dir("pids")
}

// nothingShared is nothing, and that the shared shim's cgroup is gone.
func (w *world) nothingShared(m *Manager) {
	w.t.Helper()
	w.nothing(m)
	if _, err := os.Stat(w.sharedCgroup()); err == nil {
		w.t.Errorf("cgroup left: %s", w.sharedCgroup())
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if pid < 2 {
		t.Fatalf("process %d is not known", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestPodsThatComeAtOnceShareOneShim(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	const pods = 6
	ids := make([]string, pods)
	var all sync.WaitGroup
	for i := range pods {
		all.Go(func() { ids[i], _ = m.Run(t.Context(), own(fmt.Sprint("p", i)), "shared") })
	}
	all.Wait()
	first := w.shimOf(m, ids[0])
	for _, id := range ids[1:] {
		if c := w.shimOf(m, id); c != first {
			t.Errorf("shims %d and %d, want one", first.PID(), c.PID())
		}
	}
	w.awaitShims(2) // shim and supervisor
	rec, err := m.Get(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	share := w.shared(m, rec)
	want := []shims.Process{
		{Name: shims.Shim, PID: first.PID(), Pods: pods, CPU: share.CPU}, {Name: shims.Supervisor, PID: first.Supervisor(), Pods: pods},
	}
	if cost := w.cost(m, rec.ID); !slices.Equal(cost, want) {
		t.Errorf("cost is %+v, want %+v", cost, want)
	}
	told := m.ShimReports(t.Context())
	if len(told) != 1 || told[0].Handler != "shared" || told[0].Pods != pods || told[0].Shim != first.PID() || told[0].Supervisor != first.Supervisor() ||
		told[0].CPU < share.CPU || told[0].History != (client.History{Shims: 1}) {
		t.Errorf("shared shims: %+v", told)
	}
	inGroup := func() []string {
		procs, err := os.ReadFile(filepath.Join(w.sharedCgroup(), "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(procs))
	}
	for deadline := time.Now().Add(patience); len(inGroup()) != 2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in the shared shim's cgroup: %q; want shim and supervisor", inGroup())
		}
	}
	for _, id := range ids[1:] {
		w.remove(m, id)
	}
	if err := first.Answers(t.Context()); err != nil {
		t.Errorf("the shim of a pod that is there: %v", err)
	}
	w.remove(m, ids[0])
	if told := m.ShimReports(t.Context()); len(told) != 0 {
		t.Errorf("shared shims when the last pod is gone: %+v", told)
	}
	w.nothingShared(m)
}

// The last pod goes while another comes: that gets a shim that lives, whichever is first.
func TestLastPodGoesWhileAnotherComes(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	last := w.runShared(m, own("p"))
	for i := range 8 {
		var next string
		var all sync.WaitGroup
		all.Go(func() { w.remove(m, last) })
		all.Go(func() { next, _ = m.Run(t.Context(), own(fmt.Sprint("p", i)), "shared") })
		all.Wait()
		if next == "" {
			t.Fatal("a pod that came while the last one went was not made")
		}
		if err := w.shimOf(m, next).Answers(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.phase(m, next, state.Ready)
		last = next
	}
	w.remove(m, last)
	w.nothingShared(m)
}

func TestASharedShimsDeathIsNoPodsEnd(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	id := w.runShared(m, own("p"))
	c := w.shimOf(m, id)
	before := c.PID()
	kill(t, before)
	if err := c.Answers(t.Context()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); c.PID() == before && time.Now().Before(deadline); {
		if err := c.Answers(t.Context()); err != nil { // the first may have been the dead one's last
			t.Fatal(err)
		}
	}
	if c.PID() == before {
		t.Error("the shim is the one that was killed")
	}
	if rec, err := m.Get(id); err != nil || rec.Phase != state.Ready {
		t.Errorf("sandbox is %q, %v", rec.Phase, err)
	}
	w.remove(m, id)
	w.nothingShared(m)
}

func TestTheSupervisorsDeath(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	a, b := w.runShared(m, own("a")), w.runShared(m, own("b"))
	c := w.shimOf(m, a)
	s, err := m.Sandbox(a)
	if err != nil {
		t.Fatal(err)
	}
	kill(t, c.Supervisor())
	if err := syscall.Kill(c.PID(), syscall.SIGKILL); err != nil && err != syscall.ESRCH { // it may end with its supervisor
		t.Fatal(err)
	}
	<-s.Cleaned()
	w.phase(m, a, state.NotReady)
	w.phase(m, b, state.NotReady)
	if _, _, err := s.Use(); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("use of a sandbox whose shim and supervisor are gone: %v", err)
	}
	next := w.runShared(m, own("c"))
	if err := w.shimOf(m, next).Answers(t.Context()); err != nil {
		t.Error(err)
	}
	rec, err := m.Get(next)
	if err != nil {
		t.Fatal(err)
	}
	if share := w.shared(m, rec); share.Pods != 1 {
		t.Errorf("the new shim is shared by %d pods; want 1", share.Pods)
	}
	for _, id := range []string{a, b, next} {
		w.remove(m, id)
	}
	w.nothingShared(m)
}

// Pods of both scopes are side by side after the configuration was changed, and after a restart of
// the server.
func TestBothScopesAndARestart(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	alone, a, b := w.run(m, own("alone")), w.runShared(m, own("a")), w.runShared(m, own("b"))
	was := w.shimOf(m, a).PID()
	m = w.restart(m)
	for _, id := range []string{alone, a, b} {
		w.phase(m, id, state.Ready)
	}
	if ca, cb := w.shimOf(m, a), w.shimOf(m, b); ca != cb || ca.PID() != was || w.shimOf(m, alone) == ca {
		t.Errorf("after the restart the shims are %d and %d, was %d", ca.PID(), cb.PID(), was)
	}
	c := w.runShared(m, own("c"))
	if w.shimOf(m, c).PID() != was {
		t.Error("a new pod has another shim than those before the restart")
	}
	rec, err := m.Get(c)
	if err != nil {
		t.Fatal(err)
	}
	if share := w.shared(m, rec); share.Pods != 3 {
		t.Errorf("share is %+v; want 3 pods", share)
	}
	for _, id := range []string{a, alone, c, b} {
		w.remove(m, id)
	}
	w.nothingShared(m)
}

// The server dies while it stops pods and the disk takes no record: their shims are there, their
// namespaces are not.
func TestPodsWithoutNamespacesAfterARestart(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	whole := w.runShared(m, own("whole"))
	cut := []string{w.run(m, own("alone")), w.runShared(m, own("shared"))}
	for _, id := range cut {
		s, err := m.Sandbox(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.unpin(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	m = w.restart(m)
	w.phase(m, whole, state.Ready)
	for _, id := range cut {
		w.phase(m, id, state.NotReady)
	}
	for _, id := range append(cut, whole) {
		w.remove(m, id)
	}
	w.nothingShared(m)
}

// The server dies after the last pod was stopped and before it has ended the shim.
func TestASharedShimWithoutPodsIsEnded(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	id := w.runShared(m, own("p"))
	if _, err := m.records.Update(id, func(r state.Sandbox) (state.Sandbox, error) { r.Phase = state.Stopped; return r, nil }); err != nil {
		t.Fatal(err)
	}
	m = w.restart(m)
	w.noShims()
	rec, err := m.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.o.Cgroups.RemovePod(rec.CgroupParent); err != nil { // a server that had come so far had removed it
		t.Error(err)
	}
	w.remove(m, id)
}

func TestASharedShimThatCannotStart(t *testing.T) {
	script := filepath.Join(t.TempDir(), "shim")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho out of luck >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		binary, want string
	}{
		"ends at once": {script, "out of luck"}, "is not there": {"/nonexistent/shim", "/nonexistent/shim"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.o.Shim = c.binary
			m := w.manager()
			_, err := m.Run(t.Context(), own("p"), "shared")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("run: %v; want that it says %q", err, c.want)
			}
			if c.binary == script && !errdefs.IsUnavailable(err) {
				t.Errorf("run: %v; want that it is unavailable", err)
			}
			w.nothingShared(m)
		})
	}
}

// A server that finds the shared shim silent leaves its pods to be stopped, and does not take it
// from them for a new pod.
func TestASilentSharedShim(t *testing.T) {
	w := newWorld(t)
	m := w.manager()
	id := w.runShared(m, own("p"))
	c := w.shimOf(m, id)
	pid := c.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped(t, pid)
	m.Close()
	m = w.manager()
	rec, err := m.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	another := rec
	another.ID = "another"
	if _, err := m.shims.Reacquire(ended(t), rec); err == nil || errdefs.IsNotFound(err) {
		t.Errorf("connect to a shim that is stopped: %v", err)
	}
	if _, err := m.shims.Acquire(ended(t), another); err == nil {
		t.Error("another pod has joined a shim that does not answer")
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the shim that did not answer: %v; want that it is left alone", err)
	}
	w.remove(m, id)
	w.nothingShared(m)
}

// ended is a context for requests that shall not wait long.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
