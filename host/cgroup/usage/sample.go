package usage

import (
	"time"

	"github.com/sunaba-project/sunaba/host/cgroup"
)

// Sample is all that the kernel counts of a cgroup and of those below it. What it does not count is
// 0; where that is not the same as none, a field says so.
type Sample struct {
	At time.Time

	Usage, User, System       time.Duration // processor time
	Periods, ThrottledPeriods uint64
	Throttled                 time.Duration
	Shares, Period, Quota     uint64 // Quota in microseconds a Period, 0 = none

	Memory      Memory
	Cache       uint64 // bytes of files
	Mapped      uint64 // bytes of files that are mapped
	Kernel      uint64 // bytes of the kernel's own
	Peak        uint64 // the most bytes that were ever used
	HasPeak     bool
	Reservation uint64 // bytes that are taken back last
	Failures    uint64 // how often the limit was hit
	OOMKills    uint64
	// OwnFaults and OwnMajor are the page faults without those of cgroups below.
	OwnFaults, OwnMajor uint64

	Threads, MaxThreads uint64 // MaxThreads 0 = no limit
	Devices             []Device
	HugePages           []HugePages
	Pressures           Pressures
}

// Sample reads every file of a cgroup that metrics need, each once.
//
// # Errors
//
// ErrNotFound for a cgroup that is not there (any more). What else cannot be read is left out.
func (r *Reader) Sample(cg string) (Sample, error) {
	var s Sample
	g := r.mounts.Group(cg)
	var room [4096]byte
	m, stat, err := memory(room[:0], g)
	if err != nil {
		return s, err
	}
	s.Memory = m
	if g.Unified() {
		err = sample2(g, &s, stat)
	} else {
		err = sample1(g, &s, stat)
	}
	s.Threads, s.MaxThreads = optional(g, "pids", "pids.current"), optional(g, "pids", "pids.max")
	s.HugePages = r.hugePages(g)
	s.Pressures = r.Pressures(cg)
	s.At = time.Now()
	return s, err
}

// tick is a USER_HZ tick: 100 a second on every architecture that is built for.
const tick = 10 * time.Millisecond

func sample1(g *cgroup.Group, s *Sample, memory cgroup.Table) error {
	usage, err := number(g, "cpuacct", "cpuacct.usage")
	if err != nil {
		return err
	}
	s.Usage = time.Duration(usage)
	used := g.Figures("cpuacct", "cpuacct.stat", []string{"user", "system"})
	s.User, s.System = time.Duration(used[0])*tick, time.Duration(used[1])*tick
	throttle := g.Figures("cpu", "cpu.stat", []string{"nr_periods", "nr_throttled", "throttled_time"})
	s.Periods, s.ThrottledPeriods, s.Throttled = throttle[0], throttle[1], time.Duration(throttle[2])
	s.Shares, s.Period = optional(g, "cpu", "cpu.shares"), optional(g, "cpu", "cpu.cfs_period_us")
	s.Quota = optional(g, "cpu", "cpu.cfs_quota_us") // -1 means no quota and does not parse

	s.Cache, s.Mapped = memory.Of("total_cache"), memory.Of("total_mapped_file")
	s.OwnFaults, s.OwnMajor = memory.Of("pgfault"), memory.Of("pgmajfault")
	s.Kernel = optional(g, "memory", "memory.kmem.usage_in_bytes")
	s.Failures = optional(g, "memory", "memory.failcnt")
	s.Reservation = optional(g, "memory", "memory.soft_limit_in_bytes")
	if s.Peak, err = number(g, "memory", "memory.max_usage_in_bytes"); err == nil {
		s.HasPeak = true
	}
	s.OOMKills = g.Figures("memory", "memory.oom_control", []string{"oom_kill"})[0]
	s.Devices = devices1(g)
	return nil
}

func sample2(g *cgroup.Group, s *Sample, memory cgroup.Table) error {
	cpu, err := table(nil, g, "cpu", "cpu.stat")
	if err != nil {
		return err
	}
	us := func(key string) time.Duration { return time.Duration(cpu.Of(key)) * time.Microsecond }
	s.Usage, s.User, s.System, s.Throttled = us("usage_usec"), us("user_usec"), us("system_usec"), us("throttled_usec")
	s.Periods, s.ThrottledPeriods = cpu.Of("nr_periods"), cpu.Of("nr_throttled")
	s.Shares = sharesOf(optional(g, "cpu", "cpu.weight"))
	s.Quota, s.Period = cpuMax(g)

	s.Cache, s.Mapped, s.Kernel = memory.Of("file"), memory.Of("file_mapped"), memory.Of("kernel")
	if s.Kernel == 0 { // before Linux 5.18
		s.Kernel = memory.Of("kernel_stack") + memory.Of("pagetables") + memory.Of("percpu") + memory.Of("slab")
	}
	s.OwnFaults, s.OwnMajor = s.Memory.Faults, s.Memory.Major // version 2 counts them together only
	s.Reservation = optional(g, "memory", "memory.low")
	if s.Peak, err = number(g, "memory", "memory.peak"); err == nil {
		s.HasPeak = true
	}
	events := g.Figures("memory", "memory.events", []string{"max", "oom_kill"})
	s.Failures, s.OOMKills = events[0], events[1]
	s.Devices = Devices2(g)
	return nil
}

// sharesOf turns a weight of version 2 (1 to 10000) back into shares (2 to 262144), as cAdvisor
// does.
func sharesOf(weight uint64) uint64 {
	if weight == 0 {
		return 0
	}
	return 2 + (weight-1)*262142/9999
}

// optional is number for what may not be there: 0 then.
func optional(g *cgroup.Group, controller, name string) uint64 {
	if n, _ := g.Number(controller, name); n < unlimited {
		return n
	}
	return 0
}
