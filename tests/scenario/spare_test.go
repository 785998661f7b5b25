package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
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

// spare waits for the process that a pod's shim has at hand for its next guest.
func (p *pod) spare() int {
	p.t.Helper()
	var all []part
	if !node.Within(node.Patience, func() bool { all = p.overheadParts()["spare"]; return len(all) == 1 }) {
		p.t.Fatalf("spare processes: %v\nthe daemon said:\n%s\nthe shim said:\n%s", all, p.DaemonLog(), p.shimLog())
	}
	return all[0].PID
}

// needSpares ends a test where there are none.
func needSpares(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err == nil || node.Layout().Driver == cgroup.Systemd {
		t.Skip("cgroups cannot be renamed here: there are no spare processes")
	}
}

// The process that a wasm pod has at hand becomes its guest, and there is one for the next container too. It counts to the
// pod's overhead once, whatever it is by then.
func TestSpareProcess(t *testing.T) {
	needSpares(t)
	m := start(t)
	m.pull(world.guest)
	m.pull(world.busybox)
	p := m.run("wasm")
	for i := range 2 {
		config := containerConfig(world.guest, "idle")
		config.Metadata.Name = fmt.Sprint("c", i)
		c := p.create(config)
		spare := p.spare() // made with the sandbox, and again with the second container
		c.start()
		c.says("idle")
		parts := p.overheadParts()
		// The pod may have another one at hand by now: that it gets ready for a container may come behind the container's start.
		counted := slices.ContainsFunc(parts["spare"], func(one part) bool { return one.PID == spare })
		if counted || len(parts["engine"]) != i+1 {
			t.Errorf("with %d guests: process %d among parts %v", i+1, spare, parts)
		}
		found := false
		for _, one := range parts["engine"] {
			found = found || one.PID == spare
		}
		if !found {
			t.Errorf("process %d did not become the guest's: %v", spare, parts)
		}
	}
	linux := m.run("runc")
	linux.begin(sh("echo idle; sleep 1000")).says("idle")
	if parts := linux.overheadParts(); len(parts["spare"]) != 0 {
		t.Errorf("a pod of Linux containers has spare processes: %v", parts)
	}
}

// A pod that ends without having used its spare process, in an orderly way or by its shim's death, leaves nothing of it, also
// not in a cgroup that the kubelet made.
func TestUnusedSpareProcessGoes(t *testing.T) {
	needSpares(t)
	m := start(t)
	m.pull(world.guest)
	for _, killed := range []bool{false, true} {
		parent, made := madeByKubelet(t, fmt.Sprintf("sunaba_scenario_%d_spare_%t", os.Getpid(), killed))
		for _, change := range []func(*runtime.PodSandboxConfig){
			func(*runtime.PodSandboxConfig) {},
			func(config *runtime.PodSandboxConfig) { config.Linux.CgroupParent = parent },
		} {
			p := m.run("wasm", change)
			spare := p.spare()
			if killed {
				p.killShim()
				if !node.Within(node.Patience, func() bool { return syscall.Kill(spare, 0) != nil }) {
					t.Errorf("spare process %d outlives its shim", spare)
				}
			}
			p.stop()
			p.remove()
			if syscall.Kill(spare, 0) == nil {
				t.Errorf("spare process %d outlives its pod", spare)
			}
			for _, dir := range made {
				if left, _ := filepath.Glob(dir + "/*/"); len(left) > 0 {
					t.Errorf("cgroups left: %v", left)
				}
			}
		}
		m.clean()
	}
}
