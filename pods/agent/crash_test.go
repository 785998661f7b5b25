package agent

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// crashing is web, whose app crashes twice.
func crashing(name string, attempt uint32) program {
	if name == "app" && attempt < 2 {
		return program{after: 50 * time.Millisecond, code: 3}
	}
	return webPrograms(name, attempt)
}

// life is the life of a pod: start, two crashes, an edit of an image, an edit that replaces it, its
// deletion. It returns how often records were written.
func (w *world) life() int {
	w.server.programs = crashing
	w.wishes.set(w.t, web)
	w.start()
	w.again("ready", func() bool { return w.ready("web") && w.restarts("app") >= 2 })
	w.wishes.set(w.t, strings.ReplaceAll(web, "helper:1", "helper:2"))
	uid := w.pod("web").UID
	w.again("the new image", func() bool { return w.ready("web") && w.image("helper") == "helper:2" })
	if w.pod("web").UID != uid {
		w.t.Error("an edit of an image made a new pod")
	}
	w.wishes.set(w.t, strings.ReplaceAll(web, "app: web", "app: web}, annotations: {a: b"))
	w.again("the annotation", func() bool {
		return w.pod("web").Annotations["a"] == "b" && w.image("helper") == "helper:1" && w.ready("web")
	})
	w.wishes.set(w.t, strings.ReplaceAll(web, "spec:\n", "spec:\n  hostname: other\n"))
	w.again("a new pod", func() bool { return w.ready("web") && w.pod("web").UID != uid && w.restarts("app") >= 2 })
	w.wishes.set(w.t, "")
	w.again("gone", func() bool { return len(w.agent.Pods()) == 0 && w.server.empty() })
	w.settle(time.Minute) // the sweep
	w.gone()
	w.stop()
	return w.written
}

// again waits for a state; an agent that was killed meanwhile is started again. Restart counts of a
// pod never fall.
func (w *world) again(what string, f func() bool) {
	w.t.Helper()
	w.until(what, func() bool {
		w.mu.Lock()
		killed := w.killed
		w.mu.Unlock()
		if killed {
			w.stop()
			w.mu.Lock()
			w.killed = false
			w.mu.Unlock()
			w.start()
			synctest.Wait()
		}
		for _, p := range w.agent.Pods() {
			for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
				key := string(p.UID) + c.Name
				if c.RestartCount < w.counts[key] {
					w.t.Errorf("restart count of %s fell from %d to %d", c.Name, w.counts[key], c.RestartCount)
				}
				w.counts[key] = c.RestartCount
			}
		}
		_, there := w.agent.Pod("default", "web")
		return (there || what == "gone") && f()
	})
}

func (w *world) restarts(name string) int32 { return w.status(name).RestartCount }

func (w *world) image(name string) string {
	if s := w.status(name); s.State.Running != nil {
		return s.Image
	}
	return ""
}

func (w *world) status(name string) corev1.ContainerStatus {
	p, _ := w.agent.Pod("default", "web")
	if p == nil {
		return corev1.ContainerStatus{}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == name {
			return c
		}
	}
	return corev1.ContainerStatus{}
}

// E.3: the agent is killed before and after each write of a record in a pod's life. There are never
// two sandboxes or two containers of one name (the server of the test sees to that), counts never
// fall, and nothing is left.
func TestKilledAtEachWrite(t *testing.T) {
	var writes int
	synctest.Test(t, func(t *testing.T) { writes = newWorld(t).life() })
	if t.Failed() || writes < 10 {
		t.Fatalf("%d writes in a life without a crash", writes)
	}
	for n := 1; n <= writes; n++ {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("write %d before %v", n, before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.killAt, w.before = n, before
					w.life()
				})
			})
		}
	}
}

// The same with a kill in each call that changes something in the server: the call arrives, and its
// answer reaches nobody.
func TestKilledInEachCall(t *testing.T) {
	changes := func(call string) bool {
		for _, verb := range []string{"Run", "Stop", "Remove", "Create", "Start", "PullImage"} {
			if strings.HasPrefix(call, verb) {
				return true
			}
		}
		return false
	}
	calls := 0
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.fail = func(call, _ string) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if changes(call) {
				calls++
			}
			return nil
		}
		w.life()
	})
	if t.Failed() || calls < 20 {
		t.Fatalf("%d calls in a life without a crash", calls)
	}
	for n := 1; n <= calls; n++ {
		t.Run(fmt.Sprintf("call %d", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				made := 0
				w.server.fail = func(call, _ string) error {
					w.mu.Lock()
					defer w.mu.Unlock()
					if !changes(call) {
						return nil
					}
					if made++; made == n {
						w.killed = true
						w.cancel()
					}
					return nil
				}
				w.life()
			})
		})
	}
}
