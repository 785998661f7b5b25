package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/agent/shutdown"
)

// leaving is a node of pods that are stopped in different ways. The names of pods and of their
// containers are the same.
const leaving = `
apiVersion: v1
kind: Pod
metadata: {name: short}
spec: {terminationGracePeriodSeconds: 5, containers: [{name: short, image: "app:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: long}
spec: {terminationGracePeriodSeconds: 60, containers: [{name: long, image: "app:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: never}
spec: {restartPolicy: Never, containers: [{name: never, image: "app:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: critical}
spec: {priorityClassName: system-node-critical, terminationGracePeriodSeconds: 60, containers: [{name: critical, image: "app:1"}]}
`

// shutDown calls Shutdown and returns how long it took.
func (w *world) shutDown() (time.Duration, error) {
	began := time.Now()
	err := w.agent.Shutdown(w.t.Context())
	return time.Since(began).Round(100 * time.Millisecond), err
}

// reboot ends all that runs, and the node is in another boot.
func (w *world) reboot() {
	w.boot += "+"
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for id := range w.server.containers {
		w.server.end(id, 255)
	}
	for _, s := range w.server.sandboxes {
		s.State = runtime.PodSandboxState_SANDBOX_NOTREADY
	}
}

// graced starts an agent with a kubelet's usual example of graces.
func (w *world) graced() {
	w.t.Helper()
	o := w.options()
	o.Shutdown = shutdown.Graces{Total: 30 * time.Second, Critical: 10 * time.Second}
	w.startWith(o)
}

func (w *world) leave() {
	w.server.programs = func(name string, _ uint32) program { return program{after: -1, deaf: name != "never"} }
	w.wishes.set(w.t, leaving)
	w.graced()
	w.runs("critical#0", "long#0", "never#0", "short#0")
	w.settle(time.Second)
}

// shown is a pod's status in words.
func (w *world) shown(name string) string {
	s := w.pod(name).Status
	target := "no DisruptionTarget"
	for _, c := range s.Conditions {
		if c.Type == corev1.DisruptionTarget {
			target = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
		}
	}
	return fmt.Sprintf("%s %q %q %s", s.Phase, s.Reason, s.Message, target)
}

const (
	terminatedText = `"Terminated" "Pod was terminated in response to imminent node shutdown." True TerminationByKubelet Pod was terminated in response to imminent node shutdown.`
	runningText    = `Running "" "" no DisruptionTarget`
)

// SD1, SD3, SD5, SD7: the order of a shutdown, its graces, what pods are afterwards, and that they
// are started again after the boot.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.leave()
		uids := map[string]string{}
		for _, p := range w.agent.Pods() {
			uids[p.Name] = string(p.UID)
		}
		began := time.Now()
		ended := map[string]time.Duration{}
		go func() {
			for range 400 {
				time.Sleep(100 * time.Millisecond)
				for _, name := range []string{"short", "long", "never", "critical"} {
					if _, known := ended[name]; !known && !strings.Contains(strings.Join(w.server.running(), " "), name) {
						ended[name] = time.Since(began).Round(time.Second)
					}
				}
			}
		}()
		// long needs all 20 s of the others, then critical its 10.
		if took, err := w.shutDown(); err != nil || took != 30*time.Second {
			t.Errorf("took %v, %v; want 30 s", took, err)
		}
		w.settle(30 * time.Second)
		if got, want := fmt.Sprint(ended), "map[critical:30s long:20s never:0s short:5s]"; got != want {
			t.Errorf("ended after %s, want %s", got, want)
		}
		for name, want := range map[string]string{"short": "Pending ", "long": "Pending ", "critical": "Pending ", "never": "Failed "} {
			if got := w.shown(name); got != want+terminatedText {
				t.Errorf("%s: %s", name, got)
			}
		}
		if took, err := w.shutDown(); err != nil || took != 0 { // idempotent
			t.Errorf("a second call took %v, %v", took, err)
		}
		w.stop()
		w.reboot()
		w.graced()
		w.runs("critical#1", "long#1", "short#1")
		w.settle(time.Second)
		for name := range uids {
			want := runningText
			if name == "never" {
				want = "Failed " + terminatedText
			}
			if got := w.shown(name); got != want || string(w.pod(name).UID) != uids[name] {
				t.Errorf("%s after the boot: %s, UID %s", name, got, w.pod(name).UID)
			}
		}
		w.stop()
	})
}

// SD1: a shutdown takes no longer than its pods.
func TestShutdownSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = webPrograms
		w.wishes.set(t, web)
		w.graced()
		w.until("ready", func() bool { return w.ready("web") })
		if took, err := w.shutDown(); err != nil || took >= time.Second || len(w.server.running()) != 0 {
			t.Errorf("took %v, %v; running %v", took, err, w.server.running())
		}
		w.stop()
	})
}

// SD6, SD8: while it lasts no pod is admitted or made, also not one that waited for something; when
// it is taken back all are started, in the middle of it too.
func TestShutdownTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.leave()
		stopped := make(chan error, 1)
		go func() { stopped <- w.agent.Shutdown(context.Background()) }()
		w.settle(time.Second)
		if !w.agent.ShuttingDown() {
			t.Error("the node is not said to shut down")
		}
		late := strings.ReplaceAll(one, "name: web", "name: late")
		w.wishes.set(t, leaving+"---"+late)
		w.settle(time.Second)
		const message = "Pod was rejected as the node is shutting down."
		if got := scheduled(w.pod("late")); got != "False NodeShutdown "+message || !w.happened("late", "NodeShutdown: "+message) {
			t.Errorf("a pod that came meanwhile: %s, %v", got, w.reasons("late"))
		}
		if err := w.agent.CancelShutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-stopped; !errdefs.IsAborted(err) {
			t.Errorf("the shutdown that was taken back: %v", err)
		}
		w.until("pods to be started again", func() bool {
			return strings.Join(w.server.running(), " ") == "app#0 critical#0 long#1 short#1"
		})
		w.settle(time.Second)
		for _, name := range []string{"short", "long", "critical", "late"} {
			if got := w.shown(name); got != runningText {
				t.Errorf("%s: %s", name, got)
			}
		}
		if err := w.agent.CancelShutdown(t.Context()); err != nil { // idempotent
			t.Error(err)
		}
		w.stop()
	})
}

// A pod that waits for something is not started while the node shuts down.
func TestShutdownOfWaitingPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = func(string, uint32) program { return program{after: 10 * time.Millisecond, code: 1} }
		w.wishes.set(t, one)
		o := w.options()
		o.Settings.CrashLoopMax = time.Minute
		o.Shutdown = shutdown.Graces{Total: 30 * time.Second, Critical: 10 * time.Second}
		w.startWith(o)
		w.until("a back-off", func() bool { return w.restarts("app") == 2 && len(w.server.running()) == 0 })
		if took, err := w.shutDown(); err != nil || took > time.Second {
			t.Errorf("took %v, %v", took, err)
		}
		starts := w.server.count("StartContainer app")
		w.settle(time.Hour)
		if w.server.count("StartContainer app") != starts {
			t.Error("its container was started")
		}
		w.stop()
	})
}

// SD9: the agent is killed before and after each write of a shutdown. In the same boot the pods are
// started again, since the shutdown is not known any more; after a boot too.
func TestShutdownKilled(t *testing.T) {
	writes := 0
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.leave()
		writes = w.written
		if _, err := w.shutDown(); err != nil {
			t.Fatal(err)
		}
		writes = w.written - writes
		w.stop()
	})
	if writes < 4 {
		t.Fatalf("%d writes in a shutdown of 4 pods", writes)
	}
	for n := 1; n <= writes; n++ {
		for i := range 4 {
			before, boots := i&1 != 0, i&2 != 0
			t.Run(fmt.Sprintf("write %d, before %t, boot %t", n, before, boots), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.leave()
					w.mu.Lock()
					w.killAt, w.before = w.written+n, before
					w.mu.Unlock()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					_ = w.agent.Shutdown(ctx) // the agent is killed in it
					cancel()
					w.stop()
					w.mu.Lock()
					if !w.killed && n <= 4 { // one for each pod; statuses that come together are written together
						t.Error("the agent was not killed")
					}
					w.killed, w.killAt = false, 0
					w.mu.Unlock()
					if boots {
						w.reboot()
					}
					w.graced()
					w.until("all pods but that of policy Never", func() bool {
						running := strings.Join(w.server.running(), " ")
						return strings.Contains(running, "critical#") && strings.Contains(running, "long#") && strings.Contains(running, "short#")
					})
					w.settle(time.Minute)
					for _, name := range []string{"short", "long", "critical"} {
						if got := w.shown(name); got != runningText {
							t.Errorf("%s: %s", name, got)
						}
					}
					w.stop()
				})
			})
		}
	}
}

// SD1: 0 turns it off.
func TestShutdownOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, one)
		w.start()
		w.runs("app#0")
		if _, err := w.shutDown(); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("error %v", err)
		}
		w.settle(time.Minute)
		w.runs("app#0")
		w.stop()
	})
}
