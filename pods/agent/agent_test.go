package agent

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const web = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 5
  initContainers:
  - {name: prepare, image: "busybox:1"}
  - {name: proxy, image: "proxy:1", restartPolicy: Always}
  - {name: migrate, image: "busybox:1"}
  containers:
  - {name: app, image: "app:1"}
  - {name: helper, image: "helper:1"}
`

// webPrograms: the init containers end with 0, all others run.
func webPrograms(name string, _ uint32) program {
	if name == "prepare" || name == "migrate" {
		return program{after: 100 * time.Millisecond}
	}
	return program{after: -1}
}

// SO1, SO2, IN1, SC1, IM8: init containers and sidecars in their order, then the containers, with a
// kubelet's events.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = webPrograms
		w.wishes.set(t, web)
		w.start()
		w.runs("app#0", "helper#0", "proxy#0")
		w.until("ready", func() bool { return w.ready("web") })
		var started []string
		for _, call := range w.server.calls {
			var name string
			if n, _ := fmt.Sscanf(call, "StartContainer %s", &name); n == 1 {
				started = append(started, name)
			}
		}
		if got := fmt.Sprint(started); got != "[prepare proxy migrate app helper]" {
			t.Errorf("order of starts %s", got)
		}
		for _, event := range []string{
			"Scheduled: Successfully assigned default/web to till-4",
			`Pulling: Pulling image "app:1"`,
			`Pulled: Successfully pulled image "app:1" in 0s (0s including waiting). Image size: 1000 bytes.`,
			`Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod`,
			"Created: Container created", "Started: Container started",
		} {
			if !w.happened("web", event) {
				t.Errorf("no event %q", event)
			}
		}
		p := w.pod("web")
		if p.Status.Phase != corev1.PodRunning || p.Spec.NodeName != "till-4" || p.Status.PodIP == "" || p.Generation != 1 {
			t.Errorf("pod %s on %q, IP %q, generation %d\n%s", p.Status.Phase, p.Spec.NodeName, p.Status.PodIP, p.Generation, w.describe())
		}
		if got := w.agent.Summary(); got != "1 pods, 1 ready" {
			t.Errorf("summary %q", got)
		}
		// E.4 allows 6 for a pod; this one has two init containers and a sidecar more than its
		// target.
		if w.synced > 5 {
			t.Errorf("%d synced writes of records for one start", w.synced)
		}
		w.settle(time.Minute)
		before := w.written
		w.settle(time.Hour)
		if w.written != before {
			t.Errorf("%d writes in a quiet hour", w.written-before)
		}
		w.stop()
	})
}

// A pod that is on record is listed before anybody is answered after a start, however long the server
// of the CRI takes to say what runs, and whether its file is there still or not.
func TestShownAfterAStart(t *testing.T) {
	for what, objects := range map[string]string{"its file is there": web, "its file went meanwhile": ""} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.wishes.set(t, web)
				w.server.programs = webPrograms
				w.start()
				w.until("ready", func() bool { return w.ready("web") })
				w.stop()
				w.wishes.set(t, objects)
				w.server.fail = func(call, _ string) error {
					if call == "ListPodSandbox" {
						time.Sleep(3 * time.Second)
					}
					return nil
				}
				w.start()
				begun := time.Now()
				select {
				case <-w.agent.Shown():
				case <-time.After(time.Minute):
					t.Fatal("its pods are not shown")
				}
				if _, there := w.agent.Pod("default", "web"); !there {
					t.Errorf("pod web is not listed %v after the start", time.Since(begun))
				}
				w.stop()
			})
		})
	}
}

// E.4: at most 6 synced writes for the start of a pod, one for a restart of a container.
func TestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = func(_ string, attempt uint32) program {
			if attempt < 3 {
				return program{after: 20 * time.Second, code: 1}
			}
			return program{after: -1}
		}
		w.wishes.set(t, one)
		w.start()
		w.runs("app#0")
		w.settle(10 * time.Second)
		started := w.synced
		w.runs("app#3")
		w.settle(time.Minute)
		if restarts := w.synced - started; started > 1 || restarts > 3 { // beside the version of its file
			t.Errorf("%d synced writes for the start, %d for 3 restarts", started, restarts)
		}
		w.stop()
	})
}

// BO1, BO6, BO7, GC2: a container that crashes is restarted at once, then after the back-off; one
// dead container is kept.
func TestCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = func(name string, attempt uint32) program {
			if name == "app" && attempt < 4 {
				return program{after: 50 * time.Millisecond, code: 3}
			}
			return webPrograms(name, attempt)
		}
		w.wishes.set(t, web)
		w.start()
		began := time.Now()
		w.runs("app#4", "helper#0", "proxy#0")
		// 2 init containers of 100 ms, then app: 50 ms, 0, 50 ms, 1 s, 50 ms, 1 s, 50 ms, 1 s.
		if took := time.Since(began); took < 3400*time.Millisecond || took > 3600*time.Millisecond {
			t.Errorf("took %v, want 3.4 s", took)
		}
		w.settle(time.Second)
		w.server.mu.Lock()
		dead := 0
		for _, c := range w.server.containers {
			if c.Metadata.Name == "app" && c.ExitCode == 3 {
				dead++
			}
		}
		w.server.mu.Unlock()
		if dead != 1 {
			t.Errorf("%d dead containers are kept, want 1", dead)
		}
		p := w.pod("web")
		if held := w.files.held[string(p.UID)]; held != 3 {
			t.Errorf("mounts of %d containers are held, want those of the 3 that run", held)
		}
		if got := p.Status.ContainerStatuses[0].RestartCount; got != 4 {
			t.Errorf("restart count %d", got)
		}
		if !w.happened("web", fmt.Sprintf("BackOff: Back-off restarting failed container app in pod web_default(%s)", p.UID)) {
			t.Errorf("no event of the back-off\n%s", w.describe())
		}
		w.stop()
	})
}

// TM1, TM3, TM9, B.2: a pod whose object is gone ends with its grace period, sidecars last, and
// nothing is left.
func TestDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = func(name string, attempt uint32) program {
			p := webPrograms(name, attempt)
			p.deaf = name == "helper"
			return p
		}
		w.wishes.set(t, web)
		w.start()
		w.runs("app#0", "helper#0", "proxy#0")
		began := time.Now()
		w.wishes.set(t, "")
		w.runs("helper#0", "proxy#0") // the sidecar waits for all containers
		w.settle(0)
		if p := w.pod("web"); p.DeletionTimestamp == nil {
			t.Error("no deletion time")
		}
		w.gone()
		if took := time.Since(began); took < 5*time.Second || took > 8*time.Second {
			t.Errorf("took %v, want the grace period of 5 s", took)
		}
		w.stop()
	})
}

// plain is a pod of one container.
const plain = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app, image: 'app:1'}]}"

// A start that is under way when its pod is deleted, or its agent ends, comes to its end: cut off,
// it would fail the container whatever its program did.
func TestDeleteInStart(t *testing.T) {
	for _, by := range []string{"order", "end of the agent"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.server.delay["StartContainer"] = 2 * time.Second
			w.wishes.set(t, plain)
			w.start()
			w.until("the start is under way", func() bool { return w.server.count("StartContainer app") == 1 })
			if by == "order" {
				if err := w.agent.Delete(t.Context(), "default", "web", "", -1); err != nil {
					t.Fatal(err)
				}
				w.gone()
			}
			w.stop()
			if n := w.server.count("StartContainer app"); n != 1 {
				t.Errorf("%d starts", n)
			}
		})
	}
}

// TM2: a second order to delete shortens the grace, and an order about a file is refused by the
// set.
func TestDeleteAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = func(string, uint32) program { return program{after: -1, deaf: true} }
		w.wishes.set(t, plain)
		w.start()
		w.runs("app#0")
		w.settle(time.Second)
		began := time.Now()
		if err := w.agent.Delete(t.Context(), "default", "web", "", 30); err != nil {
			t.Fatal(err)
		}
		w.settle(2 * time.Second)
		if err := w.agent.Delete(t.Context(), "default", "web", "", 4); err != nil {
			t.Fatal(err)
		}
		w.gone()
		if took := time.Since(began); took < 6*time.Second || took > 8*time.Second {
			t.Errorf("took %v, want 2 s and then 4 s", took)
		}
		if err := w.agent.Delete(t.Context(), "default", "web", "", 4); err == nil {
			t.Error("a pod that is gone was deleted")
		}
		w.stop()
	})
}

// TM2, E.2: a grace period that was ordered counts after a kill too. Delete answers when it is on
// record, and the order is taken again of a pod whose object was deleted before a kill.
func TestDeleteKilled(t *testing.T) {
	deaf := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {terminationGracePeriodSeconds: 300, containers: [{name: app, image: 'app:1'}]}"
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprintf("before %v", before), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.server.programs = func(string, uint32) program { return program{after: -1, deaf: true} }
				w.wishes.set(t, deaf)
				w.start()
				w.runs("app#0")
				w.settle(time.Second)
				w.killAt, w.before = w.written+1, before // the write of the order
				err := w.agent.Delete(t.Context(), "default", "web", "", 4)
				if err == nil && before {
					t.Error("the grace of the order is not on record, and it has succeeded")
				}
				w.stop()
				w.killed = false
				w.start()
				if before {
					if err := w.agent.Delete(t.Context(), "default", "web", "", 4); err != nil {
						t.Error(err)
					}
				}
				began := time.Now()
				w.gone()
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("took %v, want the 4 s that were ordered", took)
				}
				w.stop()
			})
		})
	}
}

// B.10: all pods end with grace and nothing of them is left; what is wanted stays, and is made
// again by the next agent only.
func TestDeleteAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = func(string, uint32) program { return program{after: -1, deaf: true} }
		pod := func(name string) string {
			return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {terminationGracePeriodSeconds: 20, containers: [{name: " + name + ", image: 'app:1'}]}\n---\n"
		}
		w.wishes.set(t, pod("a")+pod("b"))
		w.start()
		w.runs("a#0", "b#0")
		began := time.Now()
		if err := w.agent.DeleteAll(t.Context(), -1); err != nil {
			t.Fatal(err)
		}
		w.gone()
		if took := time.Since(began); took < 20*time.Second || took > 22*time.Second {
			t.Errorf("took %v, want the 20 s of the pods", took)
		}
		if len(w.wishes.Objects()) != 2 {
			t.Errorf("wanted are %v", w.wishes.Objects())
		}
		w.wishes.set(t, pod("a")+pod("b")+pod("c"))
		w.settle(time.Hour)
		if len(w.agent.Pods()) != 0 || len(w.server.running()) != 0 {
			t.Errorf("pods were made again\n%s", w.describe())
		}
		w.stop()
		w.start()
		w.runs("a#0", "b#0", "c#0")
		began = time.Now()
		if err := w.agent.DeleteAll(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		w.gone()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %v, want the 3 s that were ordered", took)
		}
		w.stop()
	})
}

// GC5, E.3: sandboxes with the agent's mark and without a record are ended, others are left alone.
func TestOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.stop() // the mark is made
		mark := w.agent.l.mark
		w.server.foreign("orphan", "11111111-2222-4333-8444-555555555555", mark)
		w.server.foreign("crictl", "61111111-2222-4333-8444-555555555555", "")
		w.server.foreign("other", "71111111-2222-4333-8444-555555555555", "another mark")
		w.start()
		w.until("the orphan gone", func() bool { return w.server.sandboxes["sandbox-of-orphan"] == nil })
		w.settle(time.Minute)
		if w.server.sandboxes["sandbox-of-crictl"] == nil || w.server.sandboxes["sandbox-of-other"] == nil || w.server.containers["container-of-crictl"].State != 1 {
			t.Errorf("others were touched: %v", w.server.calls)
		}
		w.stop()
	})
}

// What happens while nobody listens to events is found by the list after the next subscription.
func TestEventsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, plain)
		w.start()
		w.runs("app#0")
		w.settle(time.Second)
		w.server.cut()
		w.server.mu.Lock()
		for id := range w.server.containers {
			w.server.end(id, 1)
		}
		w.server.mu.Unlock()
		w.runs("app#1")
		w.settle(time.Second)
		w.server.cut()
		w.server.mu.Lock()
		clear(w.server.sandboxes)
		clear(w.server.containers)
		w.server.mu.Unlock()
		w.until("a new sandbox", func() bool { return len(w.server.running()) == 1 })
		if err := w.agent.Health(); err != nil {
			t.Error(err)
		}
		w.stop()
	})
}
