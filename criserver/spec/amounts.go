package spec

import (
	"fmt"
	"regexp"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The kernel's bounds: Documentation/scheduler/sched-bwc of its sources for quota and period,
// cpu.shares' in sched.h.
const (
	minQuota, minPeriod, maxPeriod = 1000, 1000, 1000000 // microseconds
	minShares, maxShares           = 2, 262144
)

const (
	// cpuList is the "List format" of cpuset(7), with bitmap_parselist's strides.
	cpuList = `^[0-9]+(-[0-9]+(:[0-9]+/[0-9]+)?)?(,[0-9]+(-[0-9]+(:[0-9]+/[0-9]+)?)?)*$`
	// pageSize is how the hugetlb controller's files are called.
	pageSize = `^[1-9][0-9]*[KMG]B$`
)

// CheckAmounts refuses amounts that no kernel takes. Zero is "not given", and -1 is "no limit" for
// quota and memory.
//
// # Errors
//
// ErrInvalidArgument, starting with the field below the message.
func CheckAmounts(r *runtime.LinuxContainerResources) error {
	shares, period, quota := r.GetCpuShares(), r.GetCpuPeriod(), r.GetCpuQuota()
	memory, swap := r.GetMemoryLimitInBytes(), r.GetMemorySwapLimitInBytes()
	switch adj := r.GetOomScoreAdj(); {
	case shares != 0 && (shares < minShares || shares > maxShares):
		return invalid("cpu_shares", "%d is not between %d and %d", shares, minShares, maxShares)
	case period != 0 && (period < minPeriod || period > maxPeriod):
		return invalid("cpu_period", "%d is not between %d and %d microseconds", period, minPeriod, maxPeriod)
	case quota < -1 || quota > 0 && quota < minQuota:
		return invalid("cpu_quota", "%d is neither -1 nor at least %d microseconds", quota, minQuota)
	case memory < -1:
		return invalid("memory_limit_in_bytes", "%d is negative", memory)
	case swap < -1:
		return invalid("memory_swap_limit_in_bytes", "%d is negative", swap)
	case swap > 0 && memory == 0:
		return invalid("memory_swap_limit_in_bytes", "%d is given without memory_limit_in_bytes, which it includes", swap)
	case swap > 0 && swap < memory:
		return invalid("memory_swap_limit_in_bytes", "%d is less than memory_limit_in_bytes, which it includes", swap)
	case adj < -1000 || adj > 1000:
		return invalid("oom_score_adj", "%d is not between -1000 and 1000", adj)
	}
	for _, set := range []struct{ field, list string }{{"cpuset_cpus", r.GetCpusetCpus()}, {"cpuset_mems", r.GetCpusetMems()}} {
		if set.list != "" && !regexp.MustCompile(cpuList).MatchString(set.list) {
			return invalid(set.field, "%q is not a list like 0-2,5", set.list)
		}
	}
	for i, h := range r.GetHugepageLimits() {
		if !regexp.MustCompile(pageSize).MatchString(h.GetPageSize()) {
			return invalid(fmt.Sprintf("hugepage_limits[%d].page_size", i), "%q is not a size like 2MB", h.GetPageSize())
		}
	}
	return nil
}

// CheckPodAmounts is CheckAmounts for a pod's resources and overhead, which are added up: their
// memory is 0 where there is no limit.
func CheckPodAmounts(r *runtime.LinuxContainerResources) error {
	if r.GetMemoryLimitInBytes() < 0 {
		return invalid("memory_limit_in_bytes", "%d is negative", r.GetMemoryLimitInBytes())
	}
	return CheckAmounts(r)
}
