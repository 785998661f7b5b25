package scripts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/api"
	manifests "github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/tests/disk"
	"github.com/sunaba-project/sunaba/tests/node"
)

// podsClient asks the agent of a node as the commands do.
type podsClient struct {
	pods
	*api.Client
}

func (m pods) client() *podsClient {
	m.T.Helper()
	c, err := m.PodClient(m.T.Context())
	if err != nil {
		m.T.Fatal(err)
	}
	m.T.Cleanup(func() { c.Close() })
	return &podsClient{m, c}
}

// named is a pod, an empty one if there is none.
func (c *podsClient) named(name string) corev1.Pod {
	c.T.Helper()
	for _, p := range objects[corev1.Pod](c, "pods") {
		if p.Name == name {
			return p
		}
	}
	return corev1.Pod{}
}

func objects[T any](c *podsClient, kind string) []T {
	c.T.Helper()
	resource, found := api.FindResource(kind)
	if !found {
		c.T.Fatalf("no kind %s", kind)
	}
	list, err := api.Objects[T](c.T.Context(), c.Client, resource, api.Query{})
	if err != nil {
		c.T.Fatal(err)
	}
	return list
}

// told says whether an event about an object has these words.
func (c *podsClient) told(name string, words ...string) bool {
	for _, e := range objects[corev1.Event](c, "events") {
		all := e.InvolvedObject.Name == name
		for _, w := range words {
			all = all && strings.Contains(e.Reason+": "+e.Message, w)
		}
		if all {
			return true
		}
	}
	return false
}

func (c *podsClient) await(what string, f func() bool) {
	c.T.Helper()
	if node.Within(node.Patience, f) {
		return
	}
	text := ""
	for _, p := range objects[corev1.Pod](c, "pods") {
		text += fmt.Sprintf("%s %s %v\n", p.Name, p.Status.Phase, p.Status.ContainerStatuses)
	}
	for _, e := range objects[corev1.Event](c, "events") {
		text += fmt.Sprintf("%s %s: %s\n", e.InvolvedObject.Name, e.Reason, e.Message)
	}
	c.T.Fatalf("waited in vain: %s\n%s", what, text)
}

// app is the status of the container of a pod that has one.
func app(p corev1.Pod) corev1.ContainerStatus {
	if len(p.Status.ContainerStatuses) == 0 {
		return corev1.ContainerStatus{}
	}
	return p.Status.ContainerStatuses[0]
}

func runs(p corev1.Pod) bool { return app(p).State.Running != nil && app(p).Ready }

// The pods of manifests on a disk that is full run on. What cannot be recorded is not begun, and
// the agent says why; no count is lost, also not over a crash of the server; with room again all
// goes on (E.1, VO1).
func TestPodsOnFullDisk(t *testing.T) {
	small, outside := disk.New(t, world.Folder, 64), t.TempDir()
	dir := filepath.Join(small, "node")
	for _, err := range []error{os.Mkdir(dir, 0o755), os.Mkdir(filepath.Join(outside, "manifests"), 0o755), os.Symlink(filepath.Join(outside, "manifests"), filepath.Join(dir, "manifests"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	m := startPodsIn(t, dir, "")
	if err := os.Remove(m.LogFile); err != nil { // the next daemon's log is where there is room
		t.Fatal(err)
	}
	m.LogFile = filepath.Join(outside, "daemon.log")
	pod := func(name, command string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: outside, hostPath: {path: %s}}, {name: work, emptyDir: {}}]
  containers: [{name: app, image: %q, command: [sh, -c, %q], volumeMounts: [{name: outside, mountPath: /outside}, {name: work, mountPath: /work}]}]
`, name, outside, world.Busybox, command)
	}
	write := func(name string) {
		t.Helper()
		text := pod(name, "while [ ! -e /outside/"+name+".end ]; do usleep 50000; done; rm /outside/"+name+".end; exit 3")
		if err := os.WriteFile(filepath.Join(outside, "manifests", name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	crash := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(outside, name+".end"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := m.client()
	for _, name := range []string{"steady", "crash", "leaves"} {
		write(name)
	}
	if _, err := c.Apply(t.Context(), api.ApplyRequest{File: "applied.yaml", Data: []byte(pod("applied", "sleep 1000"))}); err != nil {
		t.Fatal(err)
	}
	all := []string{"steady", "crash", "leaves", "applied"}
	for _, name := range all {
		c.await(name+" runs", func() bool { return runs(c.named(name)) })
	}
	before := map[string]corev1.Pod{}
	for _, name := range all {
		before[name] = c.named(name)
	}

	free := disk.TakeBytes(t, small)
	crash("crash")
	write("late")
	c.await("the agent says why a container is not started again", func() bool { return c.told("crash", "no space left on device") })
	// A small record may find the room that another has left.
	more := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\ndata: {text: " + strings.Repeat("x", 900<<10) + "}\n"
	if _, err := c.Apply(t.Context(), api.ApplyRequest{File: "more.yaml", Data: []byte(more)}); err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("apply: %v", err)
	}
	if err := os.Remove(filepath.Join(outside, "manifests", "leaves.yaml")); err != nil {
		t.Fatal(err)
	}
	restarts := int32(0) // of "crash", the last that was shown
	same := func(when string) {
		t.Helper()
		for _, name := range []string{"steady", "applied"} {
			was, is := before[name], c.named(name)
			if is.UID != was.UID || app(is).ContainerID != app(was).ContainerID || !runs(is) || app(is).RestartCount != 0 {
				t.Errorf("%s: %s is %+v, was %+v", when, name, is.Status, was.Status)
			}
		}
		// Its status is what is on record: nothing is shown that a crash of the server could take back.
		// A small record may find the room that another has left, and then it counts.
		is := c.named("crash")
		if is.UID != before["crash"].UID || app(is).RestartCount < restarts {
			t.Errorf("%s: crash is %+v, and had %d restarts", when, is.Status, restarts)
		}
		restarts = app(is).RestartCount
		list, err := m.ListContainers(t.Context(), &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{
			LabelSelector: map[string]string{"io.kubernetes.pod.name": "crash"}, State: &runtime.ContainerStateValue{State: runtime.ContainerState_CONTAINER_RUNNING},
		}})
		if err != nil || len(list.GetContainers()) != 0 {
			t.Errorf("%s: without a record these were started: %v, %v", when, list.GetContainers(), err)
		}
		if list := objects[corev1.ConfigMap](c, "configmaps"); len(list) != 0 {
			t.Errorf("%s: what could not be applied is there", when)
		}
	}
	same("full")
	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatalf("start on a full disk: %v\n%s", err, m.DaemonLog())
	}
	c = m.client()
	c.await("all pods are known", func() bool { return runs(c.named("steady")) && runs(c.named("applied")) })
	c.await("the agent says again why", func() bool { return c.told("crash", "no space left on device") })
	same("started again, full")

	free()
	// A start that found no room in the server counts too, as with a kubelet.
	for name, least := range map[string]int32{"late": 0, "crash": max(restarts, 1), "steady": 0, "applied": 0} {
		c.await(name+" runs with room again", func() bool { return runs(c.named(name)) })
		is := app(c.named(name))
		if exact := name == "steady" || name == "applied"; is.RestartCount < least || exact && is.RestartCount > 0 {
			t.Errorf("%s was restarted %d times, want %d", name, is.RestartCount, least)
		}
		status, err := m.ContainerStatus(t.Context(), &runtime.ContainerStatusRequest{ContainerId: strings.TrimPrefix(is.ContainerID, "sunaba://")})
		if err != nil || status.GetStatus().GetMetadata().GetAttempt() != uint32(is.RestartCount) {
			t.Errorf("%s is attempt %d, and its count is %d: %v", name, status.GetStatus().GetMetadata().GetAttempt(), is.RestartCount, err)
		}
	}
	c.await("the pod whose file is gone ends", func() bool { return c.named("leaves").Name == "" })
	if err := c.Delete(t.Context(), api.DeleteRequest{Key: manifests.Key{Kind: manifests.KindPod, Namespace: "default", Name: "applied"}}); err != nil {
		t.Error(err)
	}
	m.endPods()
	c.await("all pods end", func() bool { return len(objects[corev1.Pod](c, "pods")) == 0 })
	if err := m.Sound(); err != nil {
		t.Errorf("without pods: %v", err)
	}
}
