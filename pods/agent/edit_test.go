package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/manifest"
)

const one = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 3
  containers:
  - name: app
    image: "app:1"
    resources: {requests: {cpu: 100m}, limits: {cpu: 500m}}
`

// IM14, RS9, IM13: an edited image is pulled before the old container is stopped; UID and sandbox
// stay.
func TestEditImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, one)
		w.start()
		w.runs("app#0")
		w.settle(time.Second)
		before := w.pod("web")
		w.server.delay["PullImage"] = 20 * time.Second
		w.wishes.set(t, strings.ReplaceAll(one, "app:1", "app:2"))
		w.settle(15 * time.Second)
		w.runs("app#0") // it is being pulled
		w.runs("app#1")
		w.until("ready", func() bool { return w.ready("web") })
		after := w.pod("web")
		if after.UID != before.UID || after.Status.PodIP != before.Status.PodIP || after.Generation != 2 || after.Status.ObservedGeneration != 2 {
			t.Errorf("UID %s, IP %s, generation %d observed %d", after.UID, after.Status.PodIP, after.Generation, after.Status.ObservedGeneration)
		}
		if got := w.server.count("PullImage app:2"); got != 1 {
			t.Errorf("%d pulls of the new image", got)
		}
		w.stop()
	})
}

// TM11: an edit of another field makes a new pod, after the old one is gone.
func TestEditReplaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, one)
		w.start()
		w.runs("app#0")
		w.settle(time.Second)
		before := w.pod("web")
		w.wishes.set(t, strings.ReplaceAll(one, "spec:", "spec:\n  hostname: other"))
		w.until("a new pod", func() bool {
			p, found := w.agent.Pod("default", "web")
			return found && p.UID != before.UID && w.ready("web")
		})
		if len(w.server.sandboxes) != 1 || w.pod("web").Generation != 1 {
			t.Errorf("%d sandboxes, generation %d", len(w.server.sandboxes), w.pod("web").Generation)
		}
		w.stop()
	})
}

// RE15, CO9: resources change in place; what does not fit waits or never fits, also over a restart
// of the agent.
func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, one)
		w.start()
		w.runs("app#0")
		w.settle(time.Second)
		w.wishes.set(t, strings.ReplaceAll(one, "500m", "900m"))
		w.until("resized", func() bool { return w.server.count("UpdateContainerResources 90000") == 1 })
		w.runs("app#0")
		w.settle(time.Second)
		if got := w.pod("web").Spec.Containers[0].Resources.Limits.Cpu().String(); got != "900m" {
			t.Errorf("limit %s", got)
		}
		w.wishes.set(t, strings.ReplaceAll(strings.ReplaceAll(one, "500m", "8"), "100m", "4"))
		w.settle(time.Second)
		pending := func() string {
			for _, c := range w.pod("web").Status.Conditions {
				if c.Type == corev1.PodResizePending {
					return c.Reason
				}
			}
			return ""
		}
		if got := pending(); got != corev1.PodReasonInfeasible {
			t.Errorf("condition %q of a resize beyond the node\n%s", got, w.describe())
		}
		w.stop()
		w.start()
		w.runs("app#0")
		w.settle(time.Second)
		if got := pending(); got != corev1.PodReasonInfeasible {
			t.Errorf("condition %q after a restart", got)
		}
		if got := w.pod("web").Spec.Containers[0].Resources.Requests.Cpu().String(); got != "100m" {
			t.Errorf("request %s though it does not fit", got)
		}
		w.wishes.set(t, strings.ReplaceAll(one, "500m", "1"))
		w.until("resized again", func() bool { return w.server.count("UpdateContainerResources 100000") == 1 && pending() == "" })
		w.stop()
	})
}

// RE15: a resize that the server refuses is tried again every 10 s, and shown.
func TestResizeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, one)
		w.start()
		w.runs("app#0")
		w.settle(time.Second)
		w.server.mu.Lock()
		w.server.fail = func(call, _ string) error {
			if call == "UpdateContainerResources" {
				return errors.New("below what is in use")
			}
			return nil
		}
		w.server.mu.Unlock()
		w.wishes.set(t, strings.ReplaceAll(one, "500m", "900m"))
		w.settle(25 * time.Second)
		if got := w.server.count("UpdateContainerResources 90000"); got != 3 {
			t.Errorf("%d tries in 25 s, want 3", got)
		}
		var message string
		for _, c := range w.pod("web").Status.Conditions {
			if c.Type == corev1.PodResizeInProgress {
				message = c.Message
			}
		}
		if !strings.Contains(message, "below what is in use") {
			t.Errorf("condition %q", message)
		}
		limits := func() string { // ST8
			s := w.pod("web").Status
			return fmt.Sprint(w.pod("web").Spec.Containers[0].Resources.Limits.Cpu(), s.ContainerStatuses[0].Resources.Limits.Cpu(), s.Resources.Limits.Cpu())
		}
		if got := limits(); got != "900m 500m 500m" {
			t.Errorf("limits of spec and statuses %s while the resize is refused", got)
		}
		w.stop()
		w.start()
		w.runs("app#0")
		w.settle(time.Second)
		if got := limits(); got != "900m 500m 500m" {
			t.Errorf("limits of spec and statuses %s after a restart of the agent", got)
		}
		w.server.mu.Lock()
		w.server.fail = nil
		w.server.mu.Unlock()
		w.until("applied", func() bool { return limits() == "900m 900m 900m" })
		w.wishes.set(t, "")
		w.gone()
		w.stop()
	})
}

// RE15: an edit while the one before is being applied is applied too.
func TestResizeTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.delay["UpdateContainerResources"] = 2 * time.Second
		w.wishes.set(t, one)
		w.start()
		w.runs("app#0")
		w.settle(time.Second)
		w.wishes.set(t, strings.ReplaceAll(one, "500m", "900m"))
		w.until("the first is under way", func() bool { return w.server.count("UpdateContainerResources 90000") == 1 })
		w.wishes.set(t, strings.ReplaceAll(one, "500m", "700m"))
		w.settle(5 * time.Second)
		if n := w.server.count("UpdateContainerResources 70000"); n != 1 {
			t.Errorf("the second was applied %d times\n%s", n, w.describe())
		}
		w.runs("app#0")
		w.stop()
	})
}

// RE15: resizes that wait are taken over by priority, then QoS, then time, whatever their pods'
// UIDs are.
func TestResizeOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		pod := func(name, spec, cpu, limits string) string {
			return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  %s\n  terminationGracePeriodSeconds: 1\n"+
				"  containers: [{name: %s, image: \"app:1\", resources: {requests: {cpu: %s, memory: 1Mi}%s}}]\n", name, spec, name, cpu, limits)
		}
		size := map[string]string{"late": "100m", "first": "100m", "equal": "100m", "early": "100m", "full": "1500m"}
		wish := func() {
			text := ""
			for _, name := range []string{"late", "first", "equal", "early", "full"} {
				switch cpu := size[name]; {
				case cpu == "":
				case name == "first":
					text += pod(name, "priority: 7", cpu, "")
				case name == "equal":
					text += pod(name, "", cpu, fmt.Sprintf(", limits: {cpu: %s, memory: 1Mi}", cpu))
				default:
					text += pod(name, "", cpu, "")
				}
			}
			w.wishes.set(t, text)
		}
		wish()
		w.start()
		w.runs("late#0", "first#0", "equal#0", "early#0", "full#0")
		for _, name := range []string{"early", "late", "equal", "first"} {
			size[name] = "1100m"
			wish()
			w.settle(time.Second)
		}
		gone := "full"
		for _, next := range []string{"first", "equal", "early", "late"} {
			delete(size, gone)
			wish()
			w.settle(5 * time.Second)
			for name := range size {
				if got := w.pod(name).Spec.Containers[0].Resources.Requests.Cpu().String(); (got == "1100m") != (name == next) {
					t.Errorf("without %s: %s requests %s\n%s", gone, name, got, w.describe())
				}
			}
			gone = next
		}
		w.stop()
	})
}

// RE15: less memory than is in use is not applied, until less is in use: the kernel would kill for
// it.
func TestResizeBelowUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		limited := func(memory string) string { return strings.ReplaceAll(one, "cpu: 500m", "cpu: 500m, memory: "+memory) }
		use := func(bytes int64) {
			w.server.mu.Lock()
			defer w.server.mu.Unlock()
			w.server.memory = map[string]int64{"app": bytes}
		}
		use(50 << 20)
		w.wishes.set(t, limited("100Mi"))
		w.start()
		w.runs("app#0")
		w.settle(time.Second)
		w.wishes.set(t, limited("40Mi"))
		w.settle(time.Second)
		message := ""
		for _, c := range w.pod("web").Status.Conditions {
			if c.Type == corev1.PodResizeInProgress {
				message = c.Reason + ": " + c.Message
			}
		}
		for _, want := range []string{"Error: cannot decrease memory limits: ", "attempting to set pod memory limit (41943040) below current usage (52428800)",
			`attempting to set container "app" memory limit (41943040) below current usage (52428800)`} {
			if !strings.Contains(message, want) {
				t.Errorf("condition %q, want %q", message, want)
			}
		}
		w.server.mu.Lock()
		if slices.ContainsFunc(w.server.calls, func(call string) bool { return strings.HasPrefix(call, "Update") }) {
			t.Errorf("limits were changed: %q", w.server.calls)
		}
		w.server.mu.Unlock()
		use(30 << 20)
		w.until("resized", func() bool { return w.server.count("UpdateContainerResources 50000") == 1 })
		w.runs("app#0")
		w.wishes.set(t, limited("20Mi"))
		w.settle(time.Second)
		w.wishes.set(t, limited("200Mi"))
		w.until("more is given", func() bool { return w.server.count("UpdateContainerResources 50000") == 2 })
		w.stop()
	})
}

// RE15: less memory is not given while the server fails to say how much is in use; one that has no
// such call is not asked.
func TestResizeUseUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		limited := func(memory string) string { return strings.ReplaceAll(one, "cpu: 500m", "cpu: 500m, memory: "+memory) }
		failing := func(err error) {
			w.server.mu.Lock()
			defer w.server.mu.Unlock()
			w.server.fail = func(call, _ string) error {
				if call == "PodSandboxStats" {
					return err
				}
				return nil
			}
		}
		failing(errors.New("no cgroup"))
		w.wishes.set(t, limited("100Mi"))
		w.start()
		w.runs("app#0")
		w.settle(time.Second)
		w.wishes.set(t, limited("40Mi"))
		w.until("the condition says why", func() bool {
			return slices.ContainsFunc(w.pod("web").Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodResizeInProgress && strings.Contains(c.Message, "read memory usage: no cgroup")
			})
		})
		if n := w.server.count("UpdateContainerResources 50000"); n != 0 {
			t.Errorf("limits were changed %d times", n)
		}
		failing(errdefs.ErrNotImplemented)
		w.until("resized", func() bool { return w.server.count("UpdateContainerResources 50000") == 1 })
		w.runs("app#0")
		w.stop()
	})
}

// BO9, BO10: a network that is watched is not asked at times: the sandbox is made when the network
// is told to be ready. One that is not watched is asked every second.
func TestNetworkReady(t *testing.T) {
	for _, watched := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.tellsNetwork = watched
			ready := false
			w.server.fail = func(call, _ string) error {
				w.server.mu.Lock()
				defer w.server.mu.Unlock()
				if call == "RunPodSandbox" && !ready {
					return fmt.Errorf("no CNI configuration: %w", errdefs.ErrUnavailable)
				}
				return nil
			}
			w.wishes.set(t, one)
			w.start()
			w.settle(4500 * time.Millisecond)
			tries := 0
			w.server.mu.Lock()
			for _, call := range w.server.calls {
				if strings.HasPrefix(call, "RunPodSandbox") {
					tries++
				}
			}
			ready = true
			w.server.mu.Unlock()
			if want := map[bool]int{true: 1, false: 5}[watched]; tries != want {
				t.Errorf("watched %v: %d tries in 4.5 s, want %d", watched, tries, want)
			}
			told := time.Now()
			if err := w.agent.Reload(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			w.runs("app#0")
			if took := time.Since(told); took > 50*time.Millisecond {
				t.Errorf("watched %v: running %s after the network was ready", watched, took)
			}
			w.stop()
		})
	}
}

const configured = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: info}
---
apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {io.sunaba.restart-on-change: "true"}}
spec:
  containers:
  - name: app
    image: "app:1"
    env: [{name: LEVEL, valueFrom: {configMapKeyRef: {name: settings, key: level}}}]
  - {name: other, image: "app:1"}
`

// B.2, EV9: a changed ConfigMap restarts the containers that use it if the pod asks for that, also
// if it changed while the agent was off; else only the volumes are brought up to date.
func TestRestartOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, configured)
		w.start()
		w.runs("app#0", "other#0")
		w.settle(time.Second)
		w.wishes.set(t, strings.ReplaceAll(configured, "info", "debug"))
		w.runs("app#1", "other#0")
		w.settle(time.Second)
		w.stop()
		w.wishes.set(t, configured)
		w.start()
		w.runs("app#2", "other#0")
		w.settle(time.Second)
		w.wishes.set(t, strings.ReplaceAll(configured, `"true"`, `"false"`))
		w.settle(time.Second)
		refreshed := w.files.refreshed
		w.wishes.set(t, strings.ReplaceAll(strings.ReplaceAll(configured, "info", "error"), `"true"`, `"false"`))
		w.settle(time.Minute)
		w.runs("app#2", "other#0")
		if w.files.refreshed != refreshed+1 {
			t.Errorf("volumes were refreshed %d times, want 1", w.files.refreshed-refreshed)
		}
		// An annotation that comes later restarts nothing by itself.
		w.wishes.set(t, strings.ReplaceAll(configured, "info", "error"))
		w.settle(time.Minute)
		w.runs("app#2", "other#0")
		w.wishes.set(t, configured)
		w.runs("app#3", "other#0")
		w.stop()
	})
}

// BO9, EV4: a container that waits for a ConfigMap starts at once when it appears.
func TestMissingConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		pod := configured[strings.Index(configured, "---"):]
		w.wishes.set(t, pod)
		w.start()
		w.runs("other#0")
		w.settle(time.Hour)
		state := w.status("app").State.Waiting
		if state == nil || state.Reason != "CreateContainerConfigError" || state.Message != `configmap "settings" not found` {
			t.Errorf("state %+v", state)
		}
		tries := w.server.count("ImageStatus app:1")
		if tries > 4 {
			t.Errorf("%d tries in an hour in which nothing changed", tries)
		}
		w.wishes.set(t, configured)
		w.settle(0)
		w.runs("app#0", "other#0")
		w.stop()
	})
}

// BO8: restart ends a back-off; a pod of another name is not found.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, web)
		w.server.programs = webPrograms
		w.start()
		w.until("ready", func() bool { return w.ready("web") })
		if err := w.agent.Restart(t.Context(), "default", "web", "helper"); err != nil {
			t.Fatal(err)
		}
		w.runs("app#0", "helper#1", "proxy#0")
		w.settle(time.Second)
		if err := w.agent.Restart(t.Context(), "default", "web", ""); err != nil {
			t.Fatal(err)
		}
		w.runs("app#1", "helper#2", "proxy#1")
		if err := w.agent.Restart(t.Context(), "default", "web", "nobody"); err == nil {
			t.Error("a container that is not there was restarted")
		}
		if err := w.agent.Restart(t.Context(), "default", "nobody", ""); err == nil {
			t.Error("a pod that is not there was restarted")
		}
		w.stop()
	})
}

// The grace of an order to delete what has no pod is not that of a later pod of the same name.
func TestGraceOfNoPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = func(string, uint32) program { return program{after: -1, deaf: true} }
		w.wishes.set(t, strings.ReplaceAll(one, "spec:", "spec:\n  nodeName: till-5"))
		w.start()
		w.settle(time.Second)
		if err := w.agent.Delete(t.Context(), "default", "web", "", 1); err != nil {
			t.Fatal(err)
		}
		w.settle(time.Second)
		w.wishes.set(t, one)
		w.until("ready", func() bool { return w.ready("web") })
		w.wishes.set(t, "")
		w.settle(2 * time.Second)
		if p := w.pod("web"); *p.DeletionGracePeriodSeconds != 3 {
			t.Errorf("the grace period is %d s, want the pod's own", *p.DeletionGracePeriodSeconds)
		}
		w.settle(time.Minute)
		w.gone()
		w.stop()
	})
}

// Who waits for what was applied does not wait for a pod of another node, which is never there.
func TestAppliedForAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		w.settle(time.Second)
		w.wishes.set(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: far}\nspec:\n  nodeName: elsewhere\n  containers: [{name: app, image: app}]\n")
		begin := time.Now()
		w.agent.Applied(t.Context(), []manifest.Key{{Kind: manifest.KindPod, Namespace: "default", Name: "far"}})
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("waited for %v", waited)
		}
		w.stop()
	})
}
