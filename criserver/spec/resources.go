package spec

import (
	"maps"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// resources runs after devices, whose rules stand in the same place.
func (in *Input) resources(s *specs.Spec) error {
	r := in.Container.GetLinux().GetResources()
	adj := OOMScoreAdj(int(r.GetOomScoreAdj()), in.Host) // else it would have the shim's
	s.Process.OOMScoreAdj = &adj
	if r == nil {
		return nil
	}
	if err := CheckSets(r, in.Host); err != nil {
		return inField("linux.resources", err)
	}
	out, err := Resources(r, in.Host)
	if err != nil {
		return inField("linux.resources", err)
	}
	out.Devices = s.Linux.Resources.Devices
	s.Linux.Resources = out
	return nil
}

// OOMScoreAdj raises a wish to what this process may set.
func OOMScoreAdj(wish int, host Host) int { return min(max(wish, host.MinOOMScoreAdj, -1000), 1000) }

// Resources translates limits, for creating and for updating a container.
// Zero means "not given" and leaves the OCI field out. Where the host has the
// controller, a memory limit without a swap limit means no swap.
//
// # Errors
//
// ErrInvalidArgument, starting with the field below linux.resources.
func Resources(r *runtime.LinuxContainerResources, host Host) (*specs.LinuxResources, error) {
	if err := CheckAmounts(r); err != nil {
		return nil, err
	}
	if len(r.GetUnified()) > 0 && !host.CgroupV2 {
		return nil, invalid("unified", "needs cgroup v2, which this host does not use")
	}
	out := &specs.LinuxResources{}
	shares, period, memory := r.GetCpuShares(), r.GetCpuPeriod(), r.GetMemoryLimitInBytes()
	cpu := specs.LinuxCPU{Cpus: r.GetCpusetCpus(), Mems: r.GetCpusetMems()}
	if shares > 0 {
		v := uint64(shares)
		cpu.Shares = &v
	}
	if quota := r.GetCpuQuota(); quota != 0 {
		cpu.Quota = &quota
	}
	if period > 0 {
		v := uint64(period)
		cpu.Period = &v
	}
	if cpu != (specs.LinuxCPU{}) {
		out.CPU = &cpu
	}
	out.Memory = memoryLimits(memory, r.GetMemorySwapLimitInBytes(), host)
	if host.Hugetlb {
		for _, h := range r.GetHugepageLimits() {
			out.HugepageLimits = append(out.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: h.GetPageSize(), Limit: h.GetLimit()})
		}
	}
	out.Unified = maps.Clone(r.GetUnified())
	return out, nil
}

func memoryLimits(memory, swap int64, host Host) *specs.LinuxMemory {
	out := &specs.LinuxMemory{}
	if memory != 0 {
		out.Limit = &memory
	}
	if swap == 0 && memory > 0 {
		swap = memory
	}
	if swap != 0 && host.SwapAccounting {
		out.Swap = &swap
	}
	if out.Limit == nil && out.Swap == nil {
		return nil
	}
	return out
}
