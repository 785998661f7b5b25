package scenario

import (
	"os"
	"strings"
	"syscall"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// prewarmed waits for the process in the cgroup of a container that nobody has started yet.
func (c *container) prewarmed() int {
	c.t.Helper()
	pid := 0
	if !node.Within(node.Patience, func() bool {
		for _, one := range c.overheadParts()["prewarmed"] {
			if one.Container == c.id {
				pid = one.PID
			}
		}
		return pid != 0
	}) {
		c.t.Fatalf("no process is prewarmed\nthe daemon said:\n%s\nthe shim said:\n%s", c.DaemonLog(), c.shimLog())
	}
	return pid
}

func gone(pid int) bool {
	return node.Within(node.Patience, func() bool { return syscall.Kill(pid, 0) != nil })
}

// The prewarmed process in a created container's cgroup becomes the container's when it is started,
// also after the daemon was killed in between, and with the limits that were set meanwhile.
func TestPrewarmedProcessOfACreatedContainer(t *testing.T) {
	m := start(t)
	m.pull(world.Guest)
	p := m.run("wasm")
	memory := func(c *container) string {
		parent, _, err := node.Layout().Pod(c.pod.id, "")
		if err != nil {
			t.Fatal(err)
		}
		cg := node.Layout().Path(node.Layout().Leaf(parent, c.id))
		for _, path := range []string{"/sys/fs/cgroup/memory%/memory.limit_in_bytes", "/sys/fs/cgroup%/memory.max"} {
			if data, err := os.ReadFile(strings.Replace(path, "%", cg, 1)); err == nil {
				return strings.TrimSpace(string(data))
			}
		}
		return ""
	}
	for name, between := range map[string]func(*container){
		"nothing": nil,
		"kill": func(*container) {
			if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := m.StartDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"update": func(c *container) {
			change := &runtime.LinuxContainerResources{MemoryLimitInBytes: 48 << 20}
			if _, err := m.UpdateContainerResources(t.Context(), &runtime.UpdateContainerResourcesRequest{ContainerId: c.id, Linux: change}); err != nil {
				t.Error(err)
			}
		},
	} {
		config := containerConfig(world.Guest, "idle")
		config.Metadata.Name = name
		config.LogPath = name + ".log"
		config.Linux = &runtime.LinuxContainerConfig{Resources: &runtime.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}}
		c := p.create(config)
		pid := c.prewarmed()
		if state := c.status().GetState(); state != runtime.ContainerState_CONTAINER_CREATED {
			t.Errorf("%s: %v before it is started", name, state)
		}
		want := "33554432"
		if between != nil {
			between(c)
		}
		if name == "update" {
			want = "50331648"
		}
		c.start()
		c.says("idle")
		if got := memory(c); !node.WithEngine(got, want) {
			t.Errorf("%s: memory is limited to %s, want %s and the engine's part", name, got, want)
		}
		same := false
		for _, one := range p.overheadParts()["engine"] {
			same = same || one.Container == c.id && one.PID == pid
		}
		if !same {
			t.Errorf("%s: process %d did not become the container's", name, pid)
		}
		c.stop(0)
	}
}

// The prewarmed process of a container that is never started ends with it, with its pod, and with
// its shim.
func TestPrewarmedProcessOfAContainerThatNeverStarts(t *testing.T) { eachScope(t, neverStarts) }

func neverStarts(m *machine, own bool) {
	t := m.t
	for name, end := range map[string]func(*container){
		"remove": func(c *container) {
			if _, err := m.RemoveContainer(t.Context(), &runtime.RemoveContainerRequest{ContainerId: c.id}); err != nil {
				t.Error(err)
			}
		},
		"stop pod": func(c *container) { c.pod.stop() },
		"kill shim": func(c *container) {
			c.killShim()
			if !node.Within(node.Patience, func() bool { return c.pod.status().GetStatus().GetState() == runtime.PodSandboxState_SANDBOX_NOTREADY }) {
				t.Error("the pod is still READY")
			}
			if state := c.status().GetState(); state == runtime.ContainerState_CONTAINER_RUNNING {
				t.Errorf("the container is %v", state)
			}
		},
	} {
		if name == "kill shim" && !own {
			continue // its successor adopts the container: TestKillSharedShim
		}
		p := m.run("wasm")
		c := p.create(containerConfig(world.Guest, "idle"))
		pid := c.prewarmed()
		end(c)
		if !gone(pid) {
			t.Errorf("%s: process %d is still there", name, pid)
		}
		p.stop()
		p.remove()
		m.clean()
	}
}
