package translate

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Keys of cgroup version 2 that a kubelet sets.
const (
	oomGroup = "memory.oom.group"
	swapMax  = "memory.swap.max"
)

// linuxResources are requests and limits in the numbers of cgroups. Shares are of the limit where
// nothing is requested. The period is always given, as by a kubelet.
func linuxResources(node Node, requests, limits corev1.ResourceList) *runtime.LinuxContainerResources {
	cpu, requested := requests[corev1.ResourceCPU]
	if !requested {
		cpu = limits[corev1.ResourceCPU]
	}
	r := &runtime.LinuxContainerResources{
		CpuShares:          runtimeclass.Shares(cpu.MilliValue()),
		CpuQuota:           runtimeclass.Quota(limits.Cpu().MilliValue(), 0),
		CpuPeriod:          runtimeclass.DefaultPeriod,
		MemoryLimitInBytes: limits.Memory().Value(),
	}
	if node.CgroupV2 {
		r.Unified = map[string]string{oomGroup: "1"}
	}
	return r
}

// Resources are a container's in the numbers of cgroups, also for a resize of one that runs. A
// limit that the container does not have is the pod's, if it has one.
func Resources(in Input, c *corev1.Container) *runtime.LinuxContainerResources {
	limits := c.Resources.Limits.DeepCopy()
	if pod := in.Pod.Spec.Resources; pod != nil {
		if limits == nil {
			limits = corev1.ResourceList{}
		}
		for name, q := range pod.Limits {
			have, ok := limits[name]
			basic := (name == corev1.ResourceCPU || name == corev1.ResourceMemory) && have.IsZero()
			if basic || isHugePages(name) && !ok {
				limits[name] = q.DeepCopy()
			}
		}
	}
	r := linuxResources(in.Node, c.Resources.Requests, limits)
	r.OomScoreAdj = oomScoreAdj(in.Pod, c, in.Node.Memory)
	r.HugepageLimits = hugePages(in.Node, limits)
	noSwap(in.Node, r)
	return r
}

// noSwap keeps a container out of swap.
func noSwap(node Node, r *runtime.LinuxContainerResources) {
	switch {
	case !node.SwapAccounting:
	case node.CgroupV2:
		r.Unified[swapMax] = "0"
	default:
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
	}
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// hugePages are limits for every size that the node has, 0 unless the container has one.
func hugePages(node Node, limits corev1.ResourceList) []*runtime.HugepageLimit {
	wanted := map[string]uint64{}
	for name, q := range limits {
		if !isHugePages(name) {
			continue
		}
		size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
		if err == nil && q.Sign() > 0 {
			wanted[pageSize(size.Value())] = uint64(q.Value())
		}
	}
	var list []*runtime.HugepageLimit
	for _, size := range node.HugePageSizes {
		list = append(list, &runtime.HugepageLimit{PageSize: size, Limit: wanted[size]})
	}
	return list
}

// pageSize is a size in bytes as the hugetlb controller names it: "64KB", "2MB", "1GB".
func pageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	unit := 0
	for bytes >= 1024 && bytes%1024 == 0 && unit < len(units)-1 {
		bytes /= 1024
		unit++
	}
	return strconv.FormatInt(bytes, 10) + units[unit]
}

// SandboxResources are what all containers may use together, without the overhead, also for a
// resize. A limit of the sum bounds the pod only if every container has one, or the pod itself.
func SandboxResources(in Input) *runtime.LinuxContainerResources {
	limits := runtimeclass.EffectiveLimits(in.Pod, nil)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if !limited(in.Pod, name) {
			delete(limits, name)
		}
	}
	return linuxResources(in.Node, runtimeclass.EffectiveRequests(in.Pod, nil), limits)
}

// limited says whether all containers have a limit of the resource, or the pod has.
func limited(pod *corev1.Pod, name corev1.ResourceName) bool {
	if r := pod.Spec.Resources; r != nil {
		if q := r.Limits[name]; !q.IsZero() {
			return true
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if q := list[i].Resources.Limits[name]; q.IsZero() {
				return false
			}
		}
	}
	return true
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
