package run

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// The kubelet's oom_score_adj by class of service: a pod whose limits equal
// its requests is killed last, one without requests first.
const (
	guaranteedOOMScoreAdj = -997
	bestEffortOOMScoreAdj = 1000
)

func linuxResources(requests, limits corev1.ResourceList) *runtime.LinuxContainerResources {
	r := &runtime.LinuxContainerResources{
		CpuShares:          runtimeclass.Shares(requests.Cpu().MilliValue()),
		MemoryLimitInBytes: limits.Memory().Value(),
	}
	if quota := runtimeclass.Quota(limits.Cpu().MilliValue(), 0); quota > 0 {
		r.CpuQuota, r.CpuPeriod = quota, runtimeclass.DefaultPeriod
	}
	return r
}

func containerResources(pod *corev1.Pod, c *corev1.Container, machine int64) *runtime.LinuxContainerResources {
	r := linuxResources(c.Resources.Requests, c.Resources.Limits)
	r.OomScoreAdj = oomScoreAdj(pod, c, machine)
	return r
}

// sandboxResources are those of all containers, without the overhead.
func sandboxResources(pod *corev1.Pod) *runtime.LinuxContainerResources {
	return linuxResources(runtimeclass.EffectiveRequests(pod, nil), runtimeclass.EffectiveLimits(pod, nil))
}

// overheadResources is nil for a class without overhead.
func overheadResources(overhead corev1.ResourceList) *runtime.LinuxContainerResources {
	if len(overhead) == 0 {
		return nil
	}
	l := runtimeclass.OverheadLinux(overhead)
	return &runtime.LinuxContainerResources{
		CpuShares: l.CPUShares, CpuQuota: l.CPUQuota, CpuPeriod: l.CPUPeriod, MemoryLimitInBytes: l.MemoryBytes,
	}
}

func oomScoreAdj(pod *corev1.Pod, c *corev1.Container, machine int64) int64 {
	qos := runtimeclass.QOS(pod)
	switch {
	case qos == corev1.PodQOSBestEffort:
		return bestEffortOOMScoreAdj
	case qos == corev1.PodQOSGuaranteed:
		return guaranteedOOMScoreAdj
	case machine <= 0:
		return bestEffortOOMScoreAdj - 1
	}
	adj := 1000 - 1000*c.Resources.Requests.Memory().Value()/machine
	return min(max(adj, 1000+guaranteedOOMScoreAdj), bestEffortOOMScoreAdj-1)
}

// machineMemory is the machine's memory in bytes.
func machineMemory() (int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read the machine's memory: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the machine's memory: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("read the machine's memory: /proc/meminfo has no MemTotal")
}
