package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// part is one process of a pod's measured overhead.
type part struct {
	Name      string
	Container string
	PID       int
}

// overheadParts are the processes in a pod's measured overhead, by their names.
func (p *pod) overheadParts() map[string][]part {
	p.t.Helper()
	found := map[string][]part{}
	for _, value := range p.status().GetInfo() {
		var tree struct {
			Overhead struct{ Measured struct{ Parts []part } }
		}
		if json.Unmarshal([]byte(value), &tree) != nil {
			continue
		}
		for _, one := range tree.Overhead.Measured.Parts {
			found[one.Name] = append(found[one.Name], one)
		}
	}
	return found
}

// prewarmed waits for the process that a pod's shim prewarmed for its next guest.
func (p *pod) prewarmed() int {
	p.t.Helper()
	var all []part
	if !node.Within(node.Patience, func() bool { all = p.overheadParts()["prewarmed"]; return len(all) == 1 }) {
		p.t.Fatalf("prewarmed processes: %v\nthe daemon said:\n%s\nthe shim said:\n%s", all, p.DaemonLog(), p.shimLog())
	}
	return all[0].PID
}

// The process that a wasm pod has at hand becomes its guest, and there is one for the next
// container too. It counts to the pod's overhead once, whatever it is by then.
func TestPrewarmedProcess(t *testing.T) {
	m := start(t)
	m.pull(world.Guest)
	m.pull(world.Busybox)
	p := m.run("wasm")
	for i := range 2 {
		config := containerConfig(world.Guest, "idle")
		config.Metadata.Name = fmt.Sprint("c", i)
		c := p.create(config)
		prewarmed := p.prewarmed() // made with the sandbox, and again with the second container
		c.start()
		c.says("idle")
		parts := p.overheadParts()
		// The pod may have another one at hand by now: that it gets ready for a container may come
		// behind the container's start.
		counted := slices.ContainsFunc(parts["prewarmed"], func(one part) bool { return one.PID == prewarmed })
		if counted || len(parts["engine"]) != i+1 {
			t.Errorf("with %d guests: process %d among parts %v", i+1, prewarmed, parts)
		}
		found := false
		for _, one := range parts["engine"] {
			found = found || one.PID == prewarmed
		}
		if !found {
			t.Errorf("process %d did not become the guest's: %v", prewarmed, parts)
		}
	}
	linux := m.run("runc")
	linux.begin(sh("echo idle; sleep 1000")).says("idle")
	if parts := linux.overheadParts(); len(parts["prewarmed"]) != 0 {
		t.Errorf("a pod of Linux containers has prewarmed processes: %v", parts)
	}
}

// A pod that ends without having used its prewarmed process, in an orderly way or by its shim's
// death, leaves nothing of it, also not in a cgroup that the kubelet made.
func TestUnusedPrewarmedProcessIsEnded(t *testing.T) { eachScope(t, unusedIsEnded) }

func unusedIsEnded(m *machine, own bool) {
	t := m.t
	for _, killed := range []bool{false, true} {
		if killed && !own {
			continue
		}
		parent, made := madeByKubelet(t, fmt.Sprintf("sunaba_scenario_%d_prewarmed_%t", os.Getpid(), killed))
		for _, change := range []func(*runtime.PodSandboxConfig){
			func(*runtime.PodSandboxConfig) {},
			func(config *runtime.PodSandboxConfig) { config.Linux.CgroupParent = parent },
		} {
			p := m.run("wasm", change)
			prewarmed := p.prewarmed()
			if killed {
				p.killShim()
				if !node.Within(node.Patience, func() bool { return syscall.Kill(prewarmed, 0) != nil }) {
					t.Errorf("prewarmed process %d outlives its shim", prewarmed)
				}
			}
			p.stop()
			p.remove()
			if syscall.Kill(prewarmed, 0) == nil {
				t.Errorf("prewarmed process %d outlives its pod", prewarmed)
			}
			noneBelow(t, made)
		}
		m.clean()
	}
}

// noneBelow fails when there are cgroups in these.
func noneBelow(t *testing.T, made []string) {
	t.Helper()
	for _, dir := range made {
		if left, _ := filepath.Glob(dir + "/*/"); len(left) > 0 {
			t.Errorf("cgroups left: %v", left)
		}
	}
}

// The id of the next container is on no record. A server that is killed between its drawing and
// CreateContainer forgets it: what waits under it is counted, gives way to the next server's, and
// is removed with the pod, also when its shim was killed too.
func TestDrawnIDIsForgotten(t *testing.T) { eachScope(t, drawnIDIsForgotten) }

func drawnIDIsForgotten(m *machine, own bool) {
	t := m.t
	m.pull(world.Busybox)
	parent, made := madeByKubelet(t, fmt.Sprintf("sunaba_scenario_%d_drawn", os.Getpid()))
	other := m.run("wasm", func(config *runtime.PodSandboxConfig) { config.Linux.CgroupParent = parent }) // another pod, of the same parent
	neighbour := other.begin(containerConfig(world.Guest, "idle"))
	for _, end := range []string{"create", "stop", "kill shim", "another container"} {
		if end == "kill shim" && !own {
			continue
		}
		p := m.run("wasm", func(config *runtime.PodSandboxConfig) { config.Linux.CgroupParent = parent })
		prewarmed := p.prewarmed()
		counted := func() { // unless it was not wanted for too long
			t.Helper()
			if all := p.overheadParts()["prewarmed"]; syscall.Kill(prewarmed, 0) == nil && (len(all) != 1 || all[0].PID != prewarmed) {
				t.Errorf("%s: processes %v are counted, %d waits", end, all, prewarmed)
			}
		}
		switch end {
		case "create":
			m.Restart()
			counted()
			c := p.begin(containerConfig(world.Guest, "idle"))
			c.says("idle")
			if !gone(prewarmed) {
				t.Errorf("%s: process %d of the killed server's id is still there", end, prewarmed)
			}
		case "another container": // which has no guest, and another id
			p.begin(sh("echo idle; sleep 1000")).says("idle")
			counted()
		case "kill shim":
			m.Restart()
			p.killShim()
		default:
			m.Restart()
		}
		p.stop()
		if !gone(prewarmed) {
			t.Errorf("%s: process %d outlives its pod", end, prewarmed)
		}
		if code, out := m.check(); code != 0 {
			t.Errorf("%s: check: %d: %s", end, code, out)
		}
		p.remove()
	}
	if state := neighbour.status().GetState(); state != runtime.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container of another pod of the same parent is %v", state)
	}
	other.stop()
	for _, dir := range made { // what a server that was killed while it stopped a pod may leave
		if err := os.Mkdir(filepath.Join(dir, filepath.Base(leafCgroup(t, parent, strings.Repeat("0", 48)+other.id[:16]))), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if code, out := m.check(); code == 0 || !strings.Contains(out, other.id[:16]) {
		t.Errorf("check of a cgroup that is left: %d: %s", code, out)
	}
	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code, out := m.check("--repair"); code != 0 {
		t.Errorf("repair: %d: %s", code, out)
	}
	noneBelow(t, made)
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	other.remove()
	m.clean()
}
