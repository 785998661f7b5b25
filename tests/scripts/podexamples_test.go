package scripts

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// manifested is a node that runs the manifests of examples/pods from its folder.
type manifested struct{ pods }

// startExamples starts a node for manifests, with the images of examples in the registry.
func startExamples(t *testing.T, images ...string) manifested {
	t.Helper()
	world.Need(t, images...)
	return manifested{startPods(t)}
}

// place puts a manifest of examples/pods into the folder, after edits: each is a text and what
// replaces it.
func (m manifested) place(name string, edits ...string) {
	m.T.Helper()
	data := world.Manifest(m.T, filepath.Join("pods", name))
	for i := 0; i+1 < len(edits); i += 2 {
		if !bytes.Contains(data, []byte(edits[i])) {
			m.T.Fatalf("%s has no %q to edit", name, edits[i])
		}
		data = bytes.ReplaceAll(data, []byte(edits[i]), []byte(edits[i+1]))
	}
	if err := os.WriteFile(filepath.Join(m.manifests(), name), data, 0o644); err != nil {
		m.T.Fatal(err)
	}
}

// command runs a command about pods, which must succeed, and returns what it says.
func (m manifested) command(args ...string) string {
	m.T.Helper()
	args = append([]string{args[0], "--state", m.State}, args[1:]...)
	code, out, errs := m.Sunaba(args...)
	if code != 0 {
		_, list, _ := m.Sunaba("describe", "--state", m.State, "pods")
		m.T.Fatalf("%q ends with %d and %q\n%s", args, code, errs, list)
	}
	return out
}

func (m manifested) ready(pod string) {
	m.T.Helper()
	m.command("wait", "--for=condition=Ready", "--timeout=120s", "pod/"+pod)
}

func (m manifested) logs(args ...string) string {
	m.T.Helper()
	return m.command(append([]string{"logs", "--socket", m.Socket}, args...)...)
}

// pod is a pod as `get -o json` prints it.
func (m manifested) pod(name string) *corev1.Pod {
	m.T.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal([]byte(m.command("get", "-o", "json", "pod/"+name)), &pod); err != nil {
		m.T.Fatal(err)
	}
	return &pod
}

// becomes waits until a pod is there and as holds says.
func (m manifested) becomes(name, what string, holds func(*corev1.Pod) bool) *corev1.Pod {
	m.T.Helper()
	m.command("wait", "--for=create", "--timeout=60s", "pod/"+name)
	var pod *corev1.Pod
	if !node.Within(node.Patience, func() bool { pod = m.pod(name); return holds(pod) }) {
		m.T.Fatalf("the pod does not become %s: %+v", what, pod.Status)
	}
	return pod
}

// gone removes manifests and waits for the end of the pods.
func (m manifested) gone(pod string, files ...string) {
	m.T.Helper()
	for _, name := range files {
		if err := os.Remove(filepath.Join(m.manifests(), name)); err != nil {
			m.T.Fatal(err)
		}
	}
	m.command("wait", "--for=delete", "--timeout=60s", "pod/"+pod)
}

// A guest follows a ConfigMap of its manifest, beside a Linux sidecar that serves what it writes.
// An edit of the ConfigMap restarts nothing; a page that its probe cannot write restarts the guest
// alone.
func TestExamplePodGateway(t *testing.T) {
	m := startExamples(t, "page", "busybox")
	m.place("gateway.yaml")
	m.ready("gateway")
	url := "http://" + m.pod("gateway").Status.PodIP + ":8080/"
	shows := func(want string) {
		t.Helper()
		var got string
		if !node.Within(node.Patience, func() bool { got = m.Get(url); return got == want }) {
			t.Fatalf("the page is %q, want %q", got, want)
		}
	}
	shows("<h1>Gateway 7</h1><p>All sensors answer.</p>\n")
	m.place("gateway.yaml", "All sensors answer", "Two sensors answer")
	shows("<h1>Gateway 7</h1><p>Two sensors answer.</p>\n")
	p := m.pod("gateway")
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if c.RestartCount != 0 || !c.Ready {
			t.Errorf("after an edit of the ConfigMap, container %s: %d restarts, ready %t", c.Name, c.RestartCount, c.Ready)
		}
	}
	// A folder where the probe writes its file.
	host := filepath.Join(m.Root, "pods", string(p.UID), "volumes", "www", "probe.html")
	if !node.Within(node.Patience, func() bool { _, err := os.Stat(host); return err == nil }) {
		t.Fatal("the liveness probe did not run")
	}
	if err := os.Remove(host); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(host, 0o755); err != nil {
		t.Fatal(err)
	}
	p = m.becomes("gateway", "restarted by its liveness probe", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount > 0 })
	if got := p.Status.InitContainerStatuses[0].RestartCount; got != 0 {
		t.Errorf("the sidecar was restarted %d times", got)
	}
	m.gone("gateway", "gateway.yaml")
}

// A job runs once: its init containers in order, then the guest. A new start of the server does not
// run it again.
func TestExamplePodJob(t *testing.T) {
	m := startExamples(t, "tally", "busybox")
	m.place("job.yaml")
	over := func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded }
	before := m.becomes("job", "Succeeded", over)
	if got, want := m.logs("job", "-c", "tally"), "      3 the\n      2 is\n      2 sand\n     14 words, 9 of them different, in 2 files\n"; got != want {
		t.Errorf("the log is %q, want %q", got, want)
	}
	m.Restart()
	after := m.becomes("job", "Succeeded", over)
	if a, b := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; before.UID != after.UID || a.ContainerID != b.ContainerID || b.RestartCount != 0 {
		t.Errorf("after a new start of the server: %+v, before %+v", b, a)
	}
	m.gone("job", "job.yaml")
}

// A device without a network: an image that is never pulled must be imported, by a command or from
// the folder of preloaded ones, and is used without asking the registry (IM12).
func TestExamplePodOffline(t *testing.T) {
	m := startExamples(t, "greeter", "busybox")
	m.place("offline.yaml")
	m.becomes("offline", "waiting for its image", func(p *corev1.Pod) bool {
		w := p.Status.ContainerStatuses[0].State.Waiting
		return w != nil && w.Reason == "ErrImageNeverPull"
	})
	if said := m.command("describe", "pod/offline"); !strings.Contains(said, "ErrImageNeverPull") {
		t.Errorf("describe says nothing of it: %s", said)
	}
	m.gone("offline", "offline.yaml")
	preload := filepath.Join(m.Root, "preload")
	if err := os.MkdirAll(preload, 0o755); err != nil {
		t.Fatal(err)
	}
	archives := map[string]string{"greeter": filepath.Join(t.TempDir(), "greeter.tar"), "busybox": filepath.Join(preload, "busybox.tar")}
	images := func(args ...string) {
		t.Helper()
		if code, _, errs := m.Sunaba(append([]string{"images", args[0], "--root", m.Root, "--state", m.State}, args[1:]...)...); code != 0 {
			t.Fatalf("images %q ends with %d and %q", args, code, errs)
		}
	}
	for name, archive := range archives {
		ref := world.Registry.Host + "/sunaba/" + name + ":v1"
		m.Pull(ref, "")
		images("export", "-o", archive, ref)
		images("remove", ref)
	}
	images("import", archives["greeter"])
	m.Restart() // imports what is preloaded
	if !node.Within(node.Patience, func() bool { code, _, _ := m.Sunaba("get", "--state", m.State, "pods"); return code == 0 }) {
		t.Fatal("the server does not run pods again")
	}
	m.place("offline.yaml")
	m.ready("offline")
	if said := m.command("describe", "pod/offline"); strings.Contains(said, "Pulling") || strings.Count(said, "already present") != 2 {
		t.Errorf("the registry was asked:\n%s", said)
	}
	p := m.pod("offline")
	if got, want := m.Get("http://"+p.Status.PodIP+":8080/"), "Hello from wasip1/wasm on offline\n"; got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
	if got := m.logs("offline", "-c", "tools"); got != "the tools are here\n" {
		t.Errorf("the tools say %q", got)
	}
	m.gone("offline", "offline.yaml")
	if err := os.RemoveAll(preload); err != nil {
		t.Error(err)
	}
}

// A pod whose class is not there fails with a reason, and is made anew when the class comes.
func TestExamplePodLater(t *testing.T) {
	m := startExamples(t, "greeter")
	m.place("later.yaml")
	failed := m.becomes("later", "Failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if failed.Status.Reason != "RuntimeClassNotFound" {
		t.Errorf("reason %q", failed.Status.Reason)
	}
	m.place("later-class.yaml")
	m.ready("later")
	p := m.pod("later")
	if p.UID == failed.UID || p.Spec.Overhead.Memory().String() != "4Mi" {
		t.Errorf("UID %s after %s, overhead %v", p.UID, failed.UID, p.Spec.Overhead)
	}
	if got, want := m.Get("http://"+p.Status.PodIP+":8080/"), "Hello from wasip1/wasm on later\n"; got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
	m.gone("later", "later.yaml", "later-class.yaml")
}

// Hooks and probes of a guest run another module of its image: postStart waits for the first beat,
// preStop drains the worker, so that its stop is an end of its own and not a kill after its grace
// period.
func TestExamplePodProbes(t *testing.T) {
	m := startExamples(t, "probes")
	data := bytes.ReplaceAll(world.Manifest(m.T, "probes/pod.yaml"), []byte("runtimeClassName: sunaba-wasm"), []byte("runtimeClassName: wasm"))
	data = bytes.ReplaceAll(data, []byte("periodSeconds: 5"), []byte("periodSeconds: 1"))
	if err := os.WriteFile(filepath.Join(m.manifests(), "pod.yaml"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	m.ready("worker") // not before its hook is over
	if events := m.command("events", "--for", "pod/worker"); strings.Contains(events, "Warning") {
		t.Errorf("events:\n%s", events)
	}
	m.command("restart", "worker")
	// The order to drain stays in the emptyDir: the next worker ends at once, before its hook.
	p := m.becomes("worker", "restarted", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	c := p.Status.ContainerStatuses[0]
	if last := c.LastTerminationState.Terminated; c.RestartCount != 1 || last == nil || last.ExitCode != 0 || last.Reason != "Completed" {
		t.Errorf("the worker that was stopped: %+v", c)
	}
	m.gone("worker", "pod.yaml")
}
