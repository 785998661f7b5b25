package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/agent/records"
)

// AD4, AD5, AD6: pods wait for the node, for their gates and for room, and are tried again when
// something changes.
func TestAdmissionWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		big := func(name, extra string) string {
			return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers: [{name: " + name +
				", image: 'app:1', resources: {requests: {memory: 600Mi}}}]\n" + extra + "---\n"
		}
		gated := big("c", "  schedulingGates: [{name: example.com/wait}]\n")
		far := strings.ReplaceAll(big("d", "  nodeName: elsewhere\n"), "600Mi", "1Mi")
		w.wishes.set(t, big("a", "")+big("b", "")+gated+far)
		w.start()
		w.runs("a#0")
		w.settle(time.Hour)
		b, c := w.pod("b"), w.pod("c")
		if got := scheduled(b); got != "False Unschedulable 0/1 nodes are available: 1 Insufficient memory." || b.Status.Phase != corev1.PodPending {
			t.Errorf("b: %s, %s", b.Status.Phase, got)
		}
		if got := scheduled(c); !strings.HasPrefix(got, "False SchedulingGated") {
			t.Errorf("c: %s", got)
		}
		if _, found := w.agent.Pod("default", "d"); found || !w.happened("d", `Ignored: the pod is for node "elsewhere", this is node "till-4"`) {
			t.Error("a pod of another node is here")
		}
		w.wishes.set(t, big("b", "")+strings.ReplaceAll(gated, "  schedulingGates: [{name: example.com/wait}]\n", ""))
		w.runs("b#0")
		w.settle(time.Second)
		if got := w.pod("c"); got.UID != c.UID || scheduled(got) != "False Unschedulable 0/1 nodes are available: 1 Insufficient memory." {
			t.Errorf("c without gates: %s", scheduled(got))
		}
		w.wishes.set(t, strings.ReplaceAll(gated, "  schedulingGates: [{name: example.com/wait}]\n", ""))
		w.runs("c#0")
		if got := w.pod("c"); got.UID != c.UID {
			t.Error("c has a new UID")
		}
		w.stop()
	})
}

func scheduled(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return string(c.Status) + " " + c.Reason + " " + c.Message
		}
	}
	return ""
}

// AD12: a pod of a class that is not there fails, and is made anew when the class appears. AD13: a
// handler is a class of its name.
func TestClassAppears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {runtimeClassName: edge, containers: [{name: app, image: 'app:1'}]}\n"
		class := "---\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: edge}\nhandler: wasm\noverhead: {podFixed: {memory: 1Mi}}\n"
		w.wishes.set(t, pod)
		w.start()
		w.until("failed", func() bool {
			p, found := w.agent.Pod("default", "web")
			return found && p.Status.Phase == corev1.PodFailed
		})
		before := w.pod("web")
		if before.Status.Reason != "RuntimeClassNotFound" {
			t.Errorf("reason %q", before.Status.Reason)
		}
		w.wishes.set(t, pod+class)
		w.runs("app#0")
		if after := w.pod("web"); after.UID == before.UID || after.Spec.Overhead.Memory().String() != "1Mi" {
			t.Errorf("UID %s, overhead %v", after.UID, after.Spec.Overhead)
		}
		w.wishes.set(t, strings.ReplaceAll(pod, "edge", "wasm"))
		w.until("the handler's own class", func() bool { return w.ready("web") && *w.pod("web").Spec.RuntimeClassName == "wasm" })
		w.stop()
	})
}

// RB1: a new agent takes running pods over and starts nothing. RB2: after a reboot they are started
// again with the same UID.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.programs = webPrograms
		w.wishes.set(t, web)
		w.start()
		w.until("ready", func() bool { return w.ready("web") })
		before := w.pod("web")
		w.stop()
		calls := len(w.server.calls)
		left := filepath.Join(w.files.dir, "81111111-2222-4333-8444-555555555555")
		if err := os.Mkdir(left, 0o700); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.settle(time.Minute)
		if _, err := os.Stat(left); !os.IsNotExist(err) { // GC4
			t.Errorf("volumes of a pod that is gone are left: %v", err)
		}
		for _, call := range w.server.calls[calls:] {
			if verb, _, _ := strings.Cut(call, " "); verb != "Events" && verb != "ListPodSandbox" && verb != "PodSandboxStatus" {
				t.Errorf("call %q after a restart of the agent", call)
			}
		}
		w.stop()
		w.boot = "boot-2"
		w.server.mu.Lock()
		for id := range w.server.containers {
			w.server.end(id, 255)
		}
		for _, s := range w.server.sandboxes {
			s.State = 1
		}
		w.server.mu.Unlock()
		w.start()
		w.runs("app#1", "helper#1", "proxy#1")
		if after := w.pod("web"); after.UID != before.UID || !after.Status.StartTime.Equal(before.Status.StartTime) || after.Status.PodIP == before.Status.PodIP {
			t.Errorf("UID %s, started %v, IP %s", after.UID, after.Status.StartTime, after.Status.PodIP)
		}
		w.stop()
	})
}

// E.2: a record that cannot be read is set aside and the pod goes on, as its object and the server
// say; a record of a newer release refuses the start.
func TestRecordsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, one)
		w.start()
		w.runs("app#0")
		w.settle(2 * time.Second)
		before := w.pod("web")
		w.stop()
		path := filepath.Join(w.dir, "pods", string(before.UID), "pod.json")
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		good = append(records.Last(good), '\n')
		if err := os.WriteFile(path, good[:len(good)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.settle(time.Minute)
		w.runs("app#0")
		if after := w.pod("web"); after.UID != before.UID || w.server.count("RunPodSandbox web") != 1 {
			t.Errorf("UID %s instead of %s", after.UID, before.UID)
		}
		if kept, err := filepath.Glob(filepath.Join(w.dir, "pods", "broken", string(before.UID)+".*")); err != nil || len(kept) != 1 {
			t.Errorf("broken records %v, %v", kept, err)
		}
		w.stop()
		if err := os.WriteFile(path, []byte(strings.Replace(string(good), `"version":1`, `"version":2`, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(w.options()); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("a newer record: %v", err)
		}
	})
}

// VO1: volumes that fail are tried again after 0.5 s, 1 s, 2 s …
func TestMountFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.files.fail = errors.New(`MountVolume.SetUp failed for volume "v" : no such folder`)
		w.wishes.set(t, one)
		w.start()
		w.settle(3 * time.Second)
		var count int32
		for _, e := range w.agent.Events() {
			if e.Reason == "FailedMount" && e.Message == w.files.fail.Error() {
				count = e.Count
			}
		}
		if count != 3 { // at 0, 0.5 and 1.5 s
			t.Errorf("%d tries in 3 s, want 3\n%s", count, w.describe())
		}
		w.files.mu.Lock()
		w.files.fail = nil
		w.files.mu.Unlock()
		w.runs("app#0")
		w.stop()
	})
}

// AD4: a label that the node gets by a reload admits the pod that waits for it at once.
func TestLabelAppears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, strings.ReplaceAll(one, "spec:", "spec:\n  nodeSelector: {rack: '8'}"))
		w.start()
		w.settle(time.Minute)
		if got := w.server.running(); len(got) != 0 {
			t.Errorf("running %v without the label", got)
		}
		before := time.Now()
		if err := w.agent.Reload(t.Context(), map[string]string{"rack": "8"}); err != nil {
			t.Fatal(err)
		}
		w.runs("app#0")
		if d := time.Since(before); d > 0 {
			t.Errorf("started after %s", d)
		}
		w.stop()
	})
}

// A record that cannot be written holds the pod: nothing is done before it is.
func TestDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		full := true
		o := w.options()
		o.Write = func(path string, data []byte, mode records.Mode) error {
			w.mu.Lock()
			refuse := full
			w.mu.Unlock()
			if refuse {
				return os.ErrPermission
			}
			return w.write(path, data, mode)
		}
		w.wishes.set(t, one)
		w.startWith(o)
		w.settle(time.Minute)
		made, err := os.ReadDir(w.files.dir)
		if err != nil || len(made) != 0 {
			t.Errorf("%d volumes were made without a record, %v", len(made), err)
		}
		if len(w.server.sandboxes) != 0 || w.server.count("RunPodSandbox web") != 0 {
			t.Error("a sandbox was made without a record")
		}
		w.mu.Lock()
		full = false
		w.mu.Unlock()
		w.runs("app#0")
		w.stop()
	})
}

// LG1: the log of a running container is rotated within 10 s after it is too large.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, one)
		w.start()
		w.runs("app#0")
		w.settle(time.Second)
		p := w.pod("web")
		log := filepath.Join(w.dir, "logs", "default_web_"+string(p.UID), "app", "0.log")
		if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(log, make([]byte, 200), 0o640); err != nil {
			t.Fatal(err)
		}
		w.settle(11 * time.Second)
		if info, err := os.Stat(log); err != nil || info.Size() != 0 {
			t.Errorf("log was not rotated: %v, %v", info, err)
		}
		w.wishes.set(t, "")
		w.gone()
		w.stop()
	})
}

// HK2-HK4, HK6: hooks run where they belong, and their failures are told.
func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wishes.set(t, `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 10
  containers:
  - name: app
    image: "app:1"
    lifecycle:
      postStart: {exec: {command: ["true"]}}
      preStop: {exec: {command: ["false"]}}
  - name: lazy
    image: "app:1"
    lifecycle: {preStop: {sleep: {seconds: 4}}}
`)
		w.start()
		w.runs("app#0", "lazy#0")
		w.until("ready", func() bool { return w.ready("web") })
		if w.server.count("ExecSync true") != 1 {
			t.Error("postStart did not run")
		}
		began := time.Now()
		w.wishes.set(t, "")
		w.runs("lazy#0")
		w.gone()
		if took := time.Since(began); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("took %v, want the sleep of 4 s", took)
		}
		found := false
		for _, r := range w.reasons("web") {
			found = found || r == "FailedPreStopHook: PreStopHook failed"
		}
		if !found {
			t.Errorf("no event of the failed hook: %q", w.reasons("web"))
		}
		w.stop()
	})
}
