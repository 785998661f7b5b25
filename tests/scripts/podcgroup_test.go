package scripts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/tests/node"
)

// limited is what the kernel holds a pod of manifests and one of its containers to, in the words of
// both versions of cgroups.
type limited struct{ podMemory, memory, quota string }

// file is the first word of a file of a cgroup, by its name in version 1 (with the controller) or in
// version 2.
func (c *podsClient) file(group, v1, v2 string) string {
	c.T.Helper()
	for _, path := range []string{filepath.Join("/sys/fs/cgroup", filepath.Dir(v1), group, filepath.Base(v1)), filepath.Join("/sys/fs/cgroup", group, v2)} {
		if data, err := os.ReadFile(path); err == nil {
			return strings.Fields(string(data))[0]
		}
	}
	c.T.Fatalf("%s has neither %s nor %s", group, v1, v2)
	return ""
}

// groups are the cgroups of a pod and of its first container.
func (c *podsClient) groups(name string) (pod, container string) {
	c.T.Helper()
	id := strings.TrimPrefix(app(c.named(name)).ContainerID, "sunaba://")
	list, err := c.ListContainers(c.T.Context(), &runtime.ListContainersRequest{})
	if err != nil {
		c.T.Fatal(err)
	}
	for _, have := range list.GetContainers() {
		if have.GetId() == id {
			return node.PodCgroup(have.GetPodSandboxId()), node.ContainerCgroup(have.GetPodSandboxId(), id)
		}
	}
	c.T.Fatalf("container %q of %s is not there", id, name)
	return "", ""
}

func (c *podsClient) limits(name string) limited {
	c.T.Helper()
	pod, container := c.groups(name)
	return limited{
		c.file(pod, "memory/memory.limit_in_bytes", "memory.max"), c.file(container, "memory/memory.limit_in_bytes", "memory.max"),
		c.file(container, "cpu/cpu.cfs_quota_us", "cpu.max"),
	}
}

// A pod's limits are the kernel's, on the pod and on its container, with each version of cgroups.
// The number of processes has none (RE19), except systemd's for a scope. They follow an edit of the manifest while the container
// runs; less memory than it uses waits until it uses less, and kills nothing (RE4, RE5, RE7, RE9,
// RE10, RE15).
func TestPodCgroups(t *testing.T) {
	dir := world.NodeDir(t)
	m := startPodsIn(t, dir, "")
	c := m.client()
	shared := t.TempDir()
	write := func(name, resources, command string) {
		t.Helper()
		text := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: shared, hostPath: {path: %s}}]
  containers: [{name: app, image: %q, resources: %s, command: [sh, -c, %q], volumeMounts: [{name: shared, mountPath: /shared}]}]
`, name, shared, world.Busybox, resources, command)
		if err := os.WriteFile(filepath.Join(m.manifests(), name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const program = "head -c 25165824 /dev/zero >/dev/shm/a; touch /shared/full; while [ ! -e /shared/less ]; do usleep 100000; done; rm /dev/shm/a; sleep 1000"
	quota := func(micros int) string {
		if node.Layout().Driver == cgroup.Systemd {
			micros = (micros + 999) / 1000 * 1000
		}
		return fmt.Sprint(micros)
	}
	write("sized", "{limits: {cpu: 200m, memory: 64Mi}}", program)
	c.await("sized runs", func() bool { return runs(c.named("sized")) })
	first := app(c.named("sized"))
	becomes := func(what string, want limited) {
		t.Helper()
		var got limited
		if !node.Within(node.Patience, func() bool { got = c.limits("sized"); return got == want }) {
			t.Fatalf("%s: the limits are %+v, want %+v: %+v", what, got, want, c.named("sized").Status.Conditions)
		}
		if now := app(c.named("sized")); now.ContainerID != first.ContainerID || now.RestartCount != 0 {
			t.Fatalf("%s: the container is %+v", what, now)
		}
	}
	c.await("memory is in use", func() bool { _, err := os.Stat(filepath.Join(shared, "full")); return err == nil })
	pod, container := c.groups("sized")
	unlimited := []string{pod}
	if node.Layout().Driver != cgroup.Systemd { // which gives each scope its DefaultTasksMax
		unlimited = append(unlimited, container)
	}
	for _, group := range unlimited {
		if got := c.file(group, "pids/pids.max", "pids.max"); got != "max" {
			t.Errorf("pids.max of %s is %s", group, got)
		}
	}
	becomes("at first", limited{fmt.Sprint(64 << 20), fmt.Sprint(64 << 20), quota(20000)})
	write("sized", "{limits: {cpu: 400m, memory: 96Mi}}", program)
	becomes("more", limited{fmt.Sprint(96 << 20), fmt.Sprint(96 << 20), quota(40000)})
	write("sized", "{limits: {cpu: 400m, memory: 16Mi}}", program)
	c.await("the pod says that it uses more", func() bool {
		if now := app(c.named("sized")); now.RestartCount > 0 {
			t.Fatalf("the container was restarted after %+v", now.LastTerminationState.Terminated)
		}
		for _, condition := range c.named("sized").Status.Conditions {
			if condition.Type == corev1.PodResizeInProgress && strings.Contains(condition.Message, "cannot decrease memory limits: ") &&
				strings.Contains(condition.Message, `attempting to set container "app" memory limit (16777216) below current usage (`) {
				return true
			}
		}
		return false
	})
	becomes("less than it uses", limited{fmt.Sprint(96 << 20), fmt.Sprint(96 << 20), quota(40000)})
	if err := os.WriteFile(filepath.Join(shared, "less"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	becomes("less", limited{fmt.Sprint(16 << 20), fmt.Sprint(16 << 20), quota(40000)})

	// Who takes more than the limit ends. With version 2 its container does as a whole, and is started
	// again; with version 1 the process alone.
	write("eater", "{limits: {memory: 32Mi}}", "sh -c 'tail -c 100000000 /dev/zero'; echo >/shared/survived; sleep 1000")
	survived := func() bool { _, err := os.Stat(filepath.Join(shared, "survived")); return err == nil }
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		c.await("the eater's process is killed", survived)
	} else {
		c.await("the eater is killed", func() bool { return app(c.named("eater")).RestartCount > 0 })
		if last := app(c.named("eater")).LastTerminationState.Terminated; last == nil || last.Reason != "OOMKilled" || last.ExitCode != 137 || survived() {
			t.Errorf("the eater ended with %+v, a part of it survived: %t", last, survived())
		}
	}
	m.endPods()
}
