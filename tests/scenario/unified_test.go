package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// needUnified skips where the machine has cgroup version 1; tests/vm has a machine with version 2.
func needUnified(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		t.Skip("needs cgroup version 2")
	}
}

// busy is a container of a handler that runs on, and its image's.
func busy(handler string) *runtime.ContainerConfig {
	if handler == "wasm" {
		return containerConfig(world.Guest, "idle")
	}
	return sh("echo idle; exec sleep 1000")
}

// file reads a file of the container's cgroup, which is in a pod without a given parent.
func (c *container) file(name string) string {
	c.t.Helper()
	parent, _, err := node.Layout().Pod(c.pod.id, "")
	if err != nil {
		c.t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", node.Layout().Path(node.Layout().Leaf(parent, c.id)), name))
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// inItsCgroup wants the container's first process in the container's cgroup.
func (c *container) inItsCgroup() {
	c.t.Helper()
	info, err := c.ContainerStatus(c.t.Context(), &runtime.ContainerStatusRequest{ContainerId: c.id, Verbose: true})
	if err != nil {
		c.t.Fatal(err)
	}
	var verbose struct{ PID int }
	if err := json.Unmarshal([]byte(info.GetInfo()["info"]), &verbose); err != nil {
		c.t.Fatal(err)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", verbose.PID))
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		// Nothing is limited or counted in what version 1 leaves of version 2 beside it, nor in the
		// root.
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if beside := parts[0] == "0" && len(data) > len(line); !beside && !strings.Contains(parts[2], c.id) && parts[2] != "/" {
			c.t.Errorf("process %d of container %s is in %s", verbose.PID, c.id, line)
		}
	}
}

// Limits and the keys of version 2 reach the container's own cgroup, and an update changes what it
// names and no more.
func TestUnifiedKeys(t *testing.T) {
	needUnified(t)
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	for _, handler := range everyHandler {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			config := busy(handler)
			config.Linux.Resources = &runtime.LinuxContainerResources{
				CpuShares: 512, CpuQuota: 50000, CpuPeriod: 100000, MemoryLimitInBytes: 256 << 20, MemorySwapLimitInBytes: 320 << 20,
				Unified: map[string]string{"memory.high": "134217728", "memory.oom.group": "1", "pids.max": "77"},
			}
			c := m.run(handler).begin(config)
			c.says("idle")
			expect := func(want map[string]string) {
				t.Helper()
				for name, value := range want {
					got := c.file(name)
					if handler == "wasm" && (name == "memory.max" || name == "memory.high") {
						if !node.WithEngine(got, value) {
							t.Errorf("%s is %q, want %q and the engine's part", name, got, value)
						}
						continue
					}
					if got != value {
						t.Errorf("%s is %q, want %q", name, got, value)
					}
				}
			}
			weight := "20" // 512 shares, as runtimes have mapped them
			if got := c.file("cpu.weight"); got == "59" {
				weight = got // as they map them since 2025
			}
			expect(map[string]string{
				"memory.max": "268435456", "memory.swap.max": "67108864", "memory.high": "134217728", "memory.oom.group": "1",
				"pids.max": "77", "cpu.max": "50000 100000", "cpu.weight": weight,
			})
			if _, err := m.UpdateContainerResources(t.Context(), &runtime.UpdateContainerResourcesRequest{ContainerId: c.id, Linux: &runtime.LinuxContainerResources{
				MemoryLimitInBytes: 512 << 20, MemorySwapLimitInBytes: 512 << 20, Unified: map[string]string{"memory.high": "201326592"},
			}}); err != nil {
				t.Fatal(err)
			}
			expect(map[string]string{
				"memory.max": "536870912", "memory.swap.max": "0", "memory.high": "201326592", "memory.oom.group": "1",
				"pids.max": "77", "cpu.max": "50000 100000",
			})
			c.stop(0)
		})
	}
}

// Stats of version 2 have swap, and the pressure on processors, memory and devices, where the
// kernel measures it.
func TestPressureAndSwap(t *testing.T) {
	needUnified(t)
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	_, err := os.ReadFile("/proc/pressure/cpu")
	measured := err == nil
	for _, handler := range everyHandler {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			p := m.run(handler)
			c := p.begin(busy(handler))
			c.says("idle")
			answer, err := m.ContainerStats(t.Context(), &runtime.ContainerStatsRequest{ContainerId: c.id})
			if err != nil {
				t.Fatal(err)
			}
			stats := answer.GetStats()
			for what, psi := range map[string]*runtime.PsiStats{"cpu": stats.GetCpu().GetPsi(), "memory": stats.GetMemory().GetPsi(), "io": stats.GetIo().GetPsi()} {
				if (psi != nil) != measured || measured && (psi.GetSome() == nil || psi.GetFull() == nil) {
					t.Errorf("the pressure on %s is %v; the kernel measures it: %v", what, psi, measured)
				}
			}
			if stats.GetSwap() == nil || stats.GetSwap().GetTimestamp() == 0 {
				t.Errorf("swap is %v", stats.GetSwap())
			}
			sandbox, err := m.PodSandboxStats(t.Context(), &runtime.PodSandboxStatsRequest{PodSandboxId: p.id})
			if err != nil {
				t.Fatal(err)
			}
			linux := sandbox.GetStats().GetLinux()
			if (linux.GetCpu().GetPsi() != nil) != measured || (linux.GetMemory().GetPsi() != nil) != measured {
				t.Errorf("the pod's pressure: %v, %v", linux.GetCpu().GetPsi(), linux.GetMemory().GetPsi())
			}
		})
	}
}

// A container that the kernel killed for lack of memory says so under every OCI runtime, however
// soon its cgroup goes; one beside it that something else killed does not.
func TestOutOfMemoryIsTold(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	for _, handler := range []string{"runc", "crun"} {
		p := m.run(handler)
		other := p.begin(sh("echo idle; exec sleep 1000"))
		other.says("idle")
		for range 3 {
			config := sh("x=0123456789abcdef; while :; do x=$x$x; done")
			config.Linux.Resources = &runtime.LinuxContainerResources{MemoryLimitInBytes: 24 << 20, MemorySwapLimitInBytes: 24 << 20}
			p.begin(config).expectEnd(137, "OOMKilled")
		}
		other.stop(0)
		other.expectEnd(137, "Error")
	}
}

// cgroupOptions are those of the machine's cgroup file system.
func cgroupOptions(t *testing.T) string {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter("/sys/fs/cgroup"))
	if err != nil || len(mounts) != 1 {
		t.Fatalf("mounts at /sys/fs/cgroup: %v, %v", mounts, err)
	}
	return mounts[0].VFSOptions
}

// A privileged container sees the machine's cgroups and may change them, and the machine's own
// mount of them keeps its options, as systemd has set them.
func TestPrivilegedLeavesOptionsOfCgroups(t *testing.T) {
	needUnified(t)
	m := start(t)
	m.pull(world.Busybox)
	dir, before := t.TempDir(), cgroupOptions(t)
	set := func(options string) {
		t.Helper()
		err := unix.Mount("cgroup2", dir, "cgroup2", 0, options)
		if err == nil {
			err = unix.Unmount(dir, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, had, _ := strings.Cut(before, ",") // rw, then its own
	defer set(had)
	set("nsdelegate,memory_recursiveprot")
	want := cgroupOptions(t)
	for _, handler := range []string{"runc", "crun"} {
		p := m.run(handler, func(config *runtime.PodSandboxConfig) { config.Linux.SecurityContext.Privileged = true })
		config := sh("mkdir /sys/fs/cgroup/of-a-container && rmdir /sys/fs/cgroup/of-a-container && cat /sys/fs/cgroup/cgroup.controllers")
		config.Linux = &runtime.LinuxContainerConfig{SecurityContext: &runtime.LinuxContainerSecurityContext{Privileged: true}}
		p.begin(config).expectEnd(0, "Completed")
		if got := cgroupOptions(t); got != want || !strings.Contains(got, "nsdelegate") {
			t.Errorf("options of the machine's cgroups after a privileged container under %s: %q, want %q", handler, got, want)
		}
	}
}
