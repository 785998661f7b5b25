package cgroup

import (
	"fmt"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Limits bound a group as a whole. 0 is no limit.
type Limits struct {
	Shares        uint64 // of the processors, as version 1 counts them, see DefaultShares
	Quota, Period uint64 // of the processors, in microseconds
	Memory        uint64 // in bytes
}

// DefaultShares is what a group has until somebody sets its shares.
const DefaultShares = 1024

// Limit sets the limits of a group that exists, all of them: what was limited before and is not any
// more is unlimited again.
//
// # Errors
//
// The kernel's: less memory than is in use, or a quota below that of a group inside (version 1).
func (g *Group) Limit(l Limits) error {
	unit, err := manager(g)
	if err == nil {
		err = unit.Set(l.Resources(g.Unified()))
	}
	if err != nil {
		return fmt.Errorf("limit cgroup %q: %w", g.path, err)
	}
	return nil
}

func manager(g *Group) (cgroups.Manager, error) {
	config := &cgroups.Cgroup{Path: g.path, Resources: &cgroups.Resources{SkipDevices: true}}
	if g.Unified() {
		return fs2.NewManager(config, g.Dir(""))
	}
	return fs.NewManager(config, map[string]string{"cpu": g.Dir("cpu"), "memory": g.Dir("memory")})
}

// Resources are the limits as the library takes them.
func (l Limits) Resources(unified bool) *cgroups.Resources {
	r := &cgroups.Resources{SkipDevices: true, CpuShares: DefaultShares, CpuQuota: -1, Memory: -1}
	if l.Shares > 0 {
		r.CpuShares = l.Shares
	}
	if l.Quota > 0 {
		r.CpuQuota, r.CpuPeriod = int64(l.Quota), l.Period
	}
	if l.Memory > 0 {
		r.Memory = int64(l.Memory)
	}
	if unified {
		r.CpuWeight = Weight(r.CpuShares)
	}
	return r
}

// Weight turns shares of version 1 into the weight of version 2.
func Weight(shares uint64) uint64 { return cgroups.ConvertCPUSharesToCgroupV2Value(shares) }

// Resources turns the limits of an OCI spec into the library's. Devices are left out.
func Resources(r *specs.LinuxResources) *cgroups.Resources {
	out := &cgroups.Resources{}
	if r == nil {
		return out
	}
	if m := r.Memory; m != nil {
		out.Memory = value(m.Limit)
		out.MemoryReservation = value(m.Reservation)
		out.MemorySwap = value(m.Swap)
		out.MemorySwappiness = m.Swappiness
		out.OomKillDisable = value(m.DisableOOMKiller)
	}
	if c := r.CPU; c != nil {
		out.CpuShares = value(c.Shares)
		out.CpuWeight = Weight(out.CpuShares)
		out.CpuQuota = value(c.Quota)
		out.CpuBurst = c.Burst
		out.CpuPeriod = value(c.Period)
		out.CpuRtRuntime = value(c.RealtimeRuntime)
		out.CpuRtPeriod = value(c.RealtimePeriod)
		out.CpusetCpus = c.Cpus
		out.CpusetMems = c.Mems
		out.CPUIdle = c.Idle
	}
	if r.Pids != nil {
		out.PidsLimit = r.Pids.Limit
	}
	for _, h := range r.HugepageLimits {
		out.HugetlbLimit = append(out.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: h.Pagesize, Limit: h.Limit})
	}
	blockIO(out, r.BlockIO)
	out.Unified = r.Unified
	return out
}

func blockIO(out *cgroups.Resources, b *specs.LinuxBlockIO) {
	if b == nil {
		return
	}
	out.BlkioWeight = value(b.Weight)
	out.BlkioLeafWeight = value(b.LeafWeight)
	for _, w := range b.WeightDevice {
		out.BlkioWeightDevice = append(out.BlkioWeightDevice, cgroups.NewWeightDevice(w.Major, w.Minor, value(w.Weight), value(w.LeafWeight)))
	}
	throttle := func(in []specs.LinuxThrottleDevice) (all []*cgroups.ThrottleDevice) {
		for _, t := range in {
			all = append(all, cgroups.NewThrottleDevice(t.Major, t.Minor, t.Rate))
		}
		return all
	}
	out.BlkioThrottleReadBpsDevice = throttle(b.ThrottleReadBpsDevice)
	out.BlkioThrottleWriteBpsDevice = throttle(b.ThrottleWriteBpsDevice)
	out.BlkioThrottleReadIOPSDevice = throttle(b.ThrottleReadIOPSDevice)
	out.BlkioThrottleWriteIOPSDevice = throttle(b.ThrottleWriteIOPSDevice)
}

// value is what p points to, or nothing.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
