package hostile

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// ownShims are handlers whose pods have shims of their own.
const ownShims = `
[handlers.own-runc]
type = "oci"
shim_scope = "pod"
[handlers.own-wasm]
type = "wasm"
shim_scope = "pod"
`

// pidIn is the process that a verbose status names.
func pidIn(t *testing.T, info map[string]string) int {
	t.Helper()
	var found struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(info["info"]), &found); err != nil || found.PID < 2 {
		t.Fatalf("status names no process: %v, %v", err, info)
	}
	return found.PID
}

// ended says whether a process runs no more; its parent may not have taken notice.
func ended(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

func (p *pod) shimPID() int {
	p.t.Helper()
	answer, err := p.PodSandboxStatus(p.within(node.Patience), &runtime.PodSandboxStatusRequest{PodSandboxId: p.id, Verbose: true})
	p.check(err)
	return pidIn(p.t, answer.GetInfo())
}

func (c *container) process() int {
	c.t.Helper()
	answer, err := c.ContainerStatus(c.within(node.Patience), &runtime.ContainerStatusRequest{ContainerId: c.id, Verbose: true})
	c.check(err)
	return pidIn(c.t, answer.GetInfo())
}

// halt stops a process, until the test ends or cont is called.
func halt(t *testing.T, pid int) (cont func()) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cont = func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
	}
	t.Cleanup(cont)
	return cont
}

// A shim that was stopped holds nothing up: its pod is seen, its containers are killed without it,
// and the pod is removed.
func TestStoppedShim(t *testing.T) {
	n := start(t, ownShims)
	n.pull(world.busybox)
	n.pull(world.guest)
	for _, handler := range []string{"own-runc", "own-wasm", "runc", "wasm"} {
		t.Run(handler, func(t *testing.T) {
			n := &target{Watched: n.Watched, t: t}
			guest := strings.TrimPrefix(handler, "own-")
			p := n.run(handler)
			first, second := p.start(idle(guest)), p.start(idle(guest))
			_, err := p.tryCreate(idle(guest))
			n.check(err)
			pid := first.process()
			halt(t, p.shimPID())
			n.look(p)
			_, err = n.StopContainer(n.within(node.Patience), &runtime.StopContainerRequest{ContainerId: first.id, Timeout: 1})
			n.check(err)
			if status := first.wait(); status.GetExitCode() != 137 || !ended(pid) {
				t.Errorf("a container that was stopped: %v; its process has ended: %t", status, ended(pid))
			}
			_, err = n.RemoveContainer(n.within(node.Patience), &runtime.RemoveContainerRequest{ContainerId: second.id})
			n.check(err)
			p.stop()
			p.remove()
		})
	}
}

// A shim that goes on after its container was killed without it serves the pod as before.
func TestShimComesToItself(t *testing.T) {
	n := start(t, ownShims)
	n.pull(world.busybox)
	n.pull(world.guest)
	for _, handler := range []string{"own-runc", "own-wasm", "runc", "wasm"} {
		p := n.run(handler)
		guest := strings.TrimPrefix(handler, "own-")
		c := p.start(idle(guest))
		cont := halt(t, p.shimPID())
		_, err := n.StopContainer(n.within(node.Patience), &runtime.StopContainerRequest{ContainerId: c.id})
		n.check(err)
		cont()
		next := p.start(idle(guest))
		_, err = n.StopContainer(n.within(node.Patience), &runtime.StopContainerRequest{ContainerId: next.id})
		n.check(err)
		if code := c.wait().GetExitCode(); code != 137 {
			t.Errorf("exit code %d", code)
		}
		_, err = n.RemoveContainer(n.within(node.Patience), &runtime.RemoveContainerRequest{ContainerId: c.id})
		n.check(err)
	}
}

// look asks for all that shows a pod: each answers in time.
func (n *target) look(p *pod) {
	n.t.Helper()
	for name, call := range map[string]func() error{
		"status": func() error {
			_, err := n.PodSandboxStatus(n.within(node.Patience), &runtime.PodSandboxStatusRequest{PodSandboxId: p.id, Verbose: true})
			return err
		},
		"pods": func() error {
			_, err := n.ListPodSandbox(n.within(node.Patience), &runtime.ListPodSandboxRequest{})
			return err
		},
		"containers": func() error {
			_, err := n.ListContainers(n.within(node.Patience), &runtime.ListContainersRequest{})
			return err
		},
		"pod stats": func() error {
			_, err := n.ListPodSandboxStats(n.within(node.Patience), &runtime.ListPodSandboxStatsRequest{})
			return err
		},
		"container stats": func() error {
			_, err := n.ListContainerStats(n.within(node.Patience), &runtime.ListContainerStatsRequest{})
			return err
		},
		"metrics": func() error {
			_, err := n.ListPodSandboxMetrics(n.within(node.Patience), &runtime.ListPodSandboxMetricsRequest{})
			return err
		},
	} {
		if err := call(); err != nil {
			n.t.Errorf("%s: %v", name, err)
		}
	}
}
