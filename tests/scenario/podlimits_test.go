package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/tests/node"
)

// podLimits reads the memory limit (bytes) and the quota (microseconds) of a pod's own cgroup, as
// the kernel writes them.
func (p *pod) podLimits() (memory, quota string) {
	p.t.Helper()
	read := func(paths ...string) string {
		for _, path := range paths {
			if data, err := os.ReadFile(path); err == nil {
				return strings.Fields(string(data))[0]
			}
		}
		p.t.Fatalf("none of %q", paths)
		return ""
	}
	cg := node.PodCgroup(p.id)
	return read("/sys/fs/cgroup/memory"+cg+"/memory.limit_in_bytes", "/sys/fs/cgroup"+cg+"/memory.max"),
		read("/sys/fs/cgroup/cpu"+cg+"/cpu.cfs_quota_us", "/sys/fs/cgroup"+cg+"/cpu.max")
}

// A pod without a cgroup parent is limited to what it declares and its overhead;
// UpdatePodSandboxResources changes that, and the verbose status shows it, also after a restart of
// the daemon.
func TestPodResources(t *testing.T) {
	m := start(t)
	m.pull(world.Guest)
	p := m.run("wasm", func(config *runtime.PodSandboxConfig) {
		config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, CpuQuota: 50000, CpuPeriod: 100000}
		config.Linux.Overhead = &runtime.LinuxContainerResources{MemoryLimitInBytes: 16 << 20, CpuShares: 102}
	})
	expect := func(memory, quota int64) {
		t.Helper()
		if node.Layout().Driver == cgroup.Systemd {
			quota = (quota + 999) / 1000 * 1000 // systemd counts whole hundredths of a processor
		}
		gotMemory, gotQuota := p.podLimits()
		if gotMemory != fmt.Sprint(memory) || gotQuota != fmt.Sprint(quota) {
			t.Errorf("the pod's cgroup is limited to %s bytes and %s µs, want %d and %d", gotMemory, gotQuota, memory, quota)
		}
	}
	expect(80<<20, 59960)
	c := p.begin(containerConfig(world.Guest, "idle"))
	c.says("idle")

	update := func(r *runtime.UpdatePodSandboxResourcesRequest) error {
		_, err := m.UpdatePodSandboxResources(t.Context(), r)
		return err
	}
	if err := update(&runtime.UpdatePodSandboxResourcesRequest{
		PodSandboxId: p.id, Resources: &runtime.LinuxContainerResources{MemoryLimitInBytes: 128 << 20, CpuQuota: 100000, CpuPeriod: 100000},
	}); err != nil {
		t.Fatal(err)
	}
	expect(144<<20, 109960)

	// What the kernel refuses changes nothing: less than is in use, or what cannot be at all.
	if err := update(&runtime.UpdatePodSandboxResourcesRequest{
		PodSandboxId: p.id, Resources: &runtime.LinuxContainerResources{MemoryLimitInBytes: -1},
	}); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("a negative limit: %v", err)
	}
	if err := update(&runtime.UpdatePodSandboxResourcesRequest{
		PodSandboxId: p.id, Resources: &runtime.LinuxContainerResources{CpuQuota: 1, CpuPeriod: 1},
		Overhead: &runtime.LinuxContainerResources{},
	}); err == nil {
		t.Error("a period of 1 µs was taken")
	}
	expect(144<<20, 109960)

	if err := m.SignalDaemon(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := m.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(144<<20, 109960)
	var info struct {
		Overhead  struct{ Declared struct{ MemoryBytes int64 } }
		Resources struct {
			Declared  struct{ MemoryBytes, CPUMillis int64 }
			Effective struct{ MemoryBytes, CPUMillis int64 }
		}
	}
	if err := json.Unmarshal([]byte(p.status().GetInfo()["info"]), &info); err != nil {
		t.Fatal(err)
	}
	if info.Overhead.Declared.MemoryBytes != 16<<20 || info.Resources.Declared.MemoryBytes != 128<<20 ||
		info.Resources.Declared.CPUMillis != 1000 || info.Resources.Effective.MemoryBytes != 144<<20 {
		t.Errorf("verbose status: %+v", info)
	}
	if got := c.status().GetState(); got != runtime.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container is %v", got)
	}
	// What is not declared any more is free again.
	if err := update(&runtime.UpdatePodSandboxResourcesRequest{PodSandboxId: p.id, Resources: &runtime.LinuxContainerResources{}}); err != nil {
		t.Fatal(err)
	}
	if memory, _ := p.podLimits(); memory != "max" && len(memory) < 18 {
		t.Errorf("the pod's cgroup is limited to %s bytes", memory)
	}
	p.stop()
	if err := update(&runtime.UpdatePodSandboxResourcesRequest{PodSandboxId: p.id, Overhead: &runtime.LinuxContainerResources{MemoryLimitInBytes: 1}}); err != nil {
		t.Errorf("update a stopped pod: %v", err)
	}
	if err := update(&runtime.UpdatePodSandboxResourcesRequest{PodSandboxId: strings.Repeat("0", 64)}); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("update a pod that is not there: %v", err)
	}
}

// Where the client brings the cgroup, its limits are the client's.
func TestPodResourcesOfAGivenParent(t *testing.T) {
	m := start(t)
	parent, dirs := madeByKubelet(t, "sunaba_scenario_"+strings.ReplaceAll(filepath.Base(m.Options.Dir), "-", "_"))
	limit := func() string {
		t.Helper()
		for _, dir := range dirs {
			for _, file := range []string{"memory.limit_in_bytes", "memory.max"} {
				if data, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
					return string(data)
				}
			}
		}
		t.Fatal("no limit of memory")
		return ""
	}
	before := limit()
	p := m.run("runc", func(config *runtime.PodSandboxConfig) {
		config.Linux.CgroupParent = parent
		config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}
	})
	if _, err := m.UpdatePodSandboxResources(t.Context(), &runtime.UpdatePodSandboxResourcesRequest{
		PodSandboxId: p.id, Resources: &runtime.LinuxContainerResources{MemoryLimitInBytes: 128 << 20},
	}); err != nil {
		t.Fatal(err)
	}
	if got := limit(); got != before {
		t.Errorf("the limit of the client's cgroup went from %s to %s", before, got)
	}
	p.remove()
}
