package cgroup

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
)

// Metrics reads the group's figures in the message that containerd's callers decode:
// io.containerd.cgroups.v1.Metrics or io.containerd.cgroups.v2.Metrics. What a kernel
// does not count is 0. ErrNotFound when the group is gone.
func (g *Group) Metrics() (proto.Message, error) {
	if _, err := os.Stat(g.representative()); err != nil {
		return nil, fmt.Errorf("figures of cgroup %q: %w", g.path, errdefs.ErrNotFound)
	}
	if g.unified {
		return metrics2(g.dirs[""]), nil
	}
	return metrics1(g.dir), nil
}

// dir returns the group's directory in the hierarchy that has a controller, "" without one.
func (g *Group) dir(controller string) string {
	if dir, ok := g.dirs[controller]; ok {
		return dir
	}
	for hierarchy, dir := range g.dirs {
		for _, c := range strings.Split(hierarchy, ",") {
			if c == controller {
				return dir
			}
		}
	}
	return ""
}

// metrics1 reads the older hierarchies.
func metrics1(dir func(controller string) string) *v1.Metrics {
	cpu, cpuacct, memory, pids := dir("cpu"), dir("cpuacct"), dir("memory"), dir("pids")
	ticks := keyed(filepath.Join(cpuacct, "cpuacct.stat"))
	throttle := keyed(filepath.Join(cpu, "cpu.stat"))
	oom := keyed(filepath.Join(memory, "memory.oom_control"))
	return &v1.Metrics{
		Pids: &v1.PidsStat{Current: number(pids, "pids.current"), Limit: number(pids, "pids.max")},
		CPU: &v1.CPUStat{
			Usage: &v1.CPUUsage{
				Total:  number(cpuacct, "cpuacct.usage"),
				Kernel: ticks["system"] * tick,
				User:   ticks["user"] * tick,
				PerCPU: numbers(cpuacct, "cpuacct.usage_percpu"),
			},
			Throttling: &v1.Throttle{
				Periods:          throttle["nr_periods"],
				ThrottledPeriods: throttle["nr_throttled"],
				ThrottledTime:    throttle["throttled_time"],
			},
		},
		Memory: memory1(memory),
		MemoryOomControl: &v1.MemoryOomControl{
			OomKillDisable: oom["oom_kill_disable"],
			UnderOom:       oom["under_oom"],
			OomKill:        oom["oom_kill"],
		},
		Blkio: blkio1(dir("blkio")),
	}
}

// tick is a USER_HZ tick in nanoseconds: 100 a second on every architecture we build for.
const tick = 10_000_000

func memory1(dir string) *v1.MemoryStat {
	m := keyed(filepath.Join(dir, "memory.stat"))
	return &v1.MemoryStat{
		Cache: m["cache"], RSS: m["rss"], RSSHuge: m["rss_huge"], MappedFile: m["mapped_file"],
		Dirty: m["dirty"], Writeback: m["writeback"],
		PgPgIn: m["pgpgin"], PgPgOut: m["pgpgout"], PgFault: m["pgfault"], PgMajFault: m["pgmajfault"],
		InactiveAnon: m["inactive_anon"], ActiveAnon: m["active_anon"],
		InactiveFile: m["inactive_file"], ActiveFile: m["active_file"], Unevictable: m["unevictable"],
		HierarchicalMemoryLimit: m["hierarchical_memory_limit"], HierarchicalSwapLimit: m["hierarchical_memsw_limit"],
		TotalCache: m["total_cache"], TotalRSS: m["total_rss"], TotalRSSHuge: m["total_rss_huge"],
		TotalMappedFile: m["total_mapped_file"], TotalDirty: m["total_dirty"], TotalWriteback: m["total_writeback"],
		TotalPgPgIn: m["total_pgpgin"], TotalPgPgOut: m["total_pgpgout"],
		TotalPgFault: m["total_pgfault"], TotalPgMajFault: m["total_pgmajfault"],
		TotalInactiveAnon: m["total_inactive_anon"], TotalActiveAnon: m["total_active_anon"],
		TotalInactiveFile: m["total_inactive_file"], TotalActiveFile: m["total_active_file"],
		TotalUnevictable: m["total_unevictable"],
		Usage:            entry1(dir, "memory"),
		Swap:             entry1(dir, "memory.memsw"),
		Kernel:           entry1(dir, "memory.kmem"),
		KernelTCP:        entry1(dir, "memory.kmem.tcp"),
	}
}

func entry1(dir, prefix string) *v1.MemoryEntry {
	return &v1.MemoryEntry{
		Limit:   number(dir, prefix+".limit_in_bytes"),
		Usage:   number(dir, prefix+".usage_in_bytes"),
		Max:     number(dir, prefix+".max_usage_in_bytes"),
		Failcnt: number(dir, prefix+".failcnt"),
	}
}

func blkio1(dir string) *v1.BlkIOStat {
	return &v1.BlkIOStat{
		IoServiceBytesRecursive: blkioEntries(filepath.Join(dir, "blkio.throttle.io_service_bytes_recursive")),
		IoServicedRecursive:     blkioEntries(filepath.Join(dir, "blkio.throttle.io_serviced_recursive")),
	}
}

// blkioEntries reads lines of "major:minor operation value".
func blkioEntries(path string) []*v1.BlkIOEntry {
	var entries []*v1.BlkIOEntry
	for _, fields := range lines(path) {
		if len(fields) != 3 {
			continue
		}
		major, minor, ok := device(fields[0])
		value, err := strconv.ParseUint(fields[2], 10, 64)
		if ok && err == nil {
			entries = append(entries, &v1.BlkIOEntry{Op: fields[1], Major: major, Minor: minor, Value: value})
		}
	}
	return entries
}

// metrics2 reads the unified hierarchy.
func metrics2(dir string) *v2.Metrics {
	cpu := keyed(filepath.Join(dir, "cpu.stat"))
	events := keyed(filepath.Join(dir, "memory.events"))
	return &v2.Metrics{
		Pids: &v2.PidsStat{Current: number(dir, "pids.current"), Limit: number(dir, "pids.max")},
		CPU: &v2.CPUStat{
			UsageUsec: cpu["usage_usec"], UserUsec: cpu["user_usec"], SystemUsec: cpu["system_usec"],
			NrPeriods: cpu["nr_periods"], NrThrottled: cpu["nr_throttled"], ThrottledUsec: cpu["throttled_usec"],
			NrBursts: cpu["nr_bursts"], BurstUsec: cpu["burst_usec"],
		},
		Memory: memory2(dir),
		MemoryEvents: &v2.MemoryEvents{
			Low: events["low"], High: events["high"], Max: events["max"], Oom: events["oom"],
			OomKill: events["oom_kill"], OomGroupKill: events["oom_group_kill"],
		},
		Io: &v2.IOStat{Usage: ioEntries(filepath.Join(dir, "io.stat"))},
	}
}

func memory2(dir string) *v2.MemoryStat {
	m := keyed(filepath.Join(dir, "memory.stat"))
	return &v2.MemoryStat{
		Anon: m["anon"], File: m["file"], KernelStack: m["kernel_stack"], Slab: m["slab"], Sock: m["sock"], Shmem: m["shmem"],
		FileMapped: m["file_mapped"], FileDirty: m["file_dirty"], FileWriteback: m["file_writeback"], AnonThp: m["anon_thp"],
		InactiveAnon: m["inactive_anon"], ActiveAnon: m["active_anon"],
		InactiveFile: m["inactive_file"], ActiveFile: m["active_file"], Unevictable: m["unevictable"],
		SlabReclaimable: m["slab_reclaimable"], SlabUnreclaimable: m["slab_unreclaimable"],
		Pgfault: m["pgfault"], Pgmajfault: m["pgmajfault"],
		WorkingsetRefault:     m["workingset_refault_anon"] + m["workingset_refault_file"],
		WorkingsetActivate:    m["workingset_activate_anon"] + m["workingset_activate_file"],
		WorkingsetNodereclaim: m["workingset_nodereclaim"],
		Pgrefill:              m["pgrefill"], Pgscan: m["pgscan"], Pgsteal: m["pgsteal"],
		Pgactivate: m["pgactivate"], Pgdeactivate: m["pgdeactivate"], Pglazyfree: m["pglazyfree"], Pglazyfreed: m["pglazyfreed"],
		ThpFaultAlloc: m["thp_fault_alloc"], ThpCollapseAlloc: m["thp_collapse_alloc"],
		Usage: number(dir, "memory.current"), UsageLimit: unlimited(dir, "memory.max"), MaxUsage: number(dir, "memory.peak"),
		SwapUsage: number(dir, "memory.swap.current"), SwapLimit: unlimited(dir, "memory.swap.max"), SwapMaxUsage: number(dir, "memory.swap.peak"),
	}
}

// ioEntries reads lines of "major:minor rbytes=… wbytes=… rios=… wios=…".
func ioEntries(path string) []*v2.IOEntry {
	var entries []*v2.IOEntry
	for _, fields := range lines(path) {
		major, minor, ok := device(fields[0])
		if !ok {
			continue
		}
		e := &v2.IOEntry{Major: major, Minor: minor}
		for _, field := range fields[1:] {
			name, value, _ := strings.Cut(field, "=")
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				continue
			}
			switch name {
			case "rbytes":
				e.Rbytes = n
			case "wbytes":
				e.Wbytes = n
			case "rios":
				e.Rios = n
			case "wios":
				e.Wios = n
			}
		}
		entries = append(entries, e)
	}
	return entries
}

func device(s string) (major, minor uint64, ok bool) {
	a, b, found := strings.Cut(s, ":")
	major, err1 := strconv.ParseUint(a, 10, 64)
	minor, err2 := strconv.ParseUint(b, 10, 64)
	return major, minor, found && err1 == nil && err2 == nil
}

// lines reads a file's lines as fields; blank lines are left out.
func lines(path string) [][]string {
	text, err := read(path)
	if err != nil {
		return nil
	}
	var out [][]string
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 0 {
			out = append(out, fields)
		}
	}
	return out
}

// number reads a file that holds one number, 0 when it does not ("max", as the Task API shows no limit of processes).
func number(dir, name string) uint64 {
	n, _ := one(dir, name)
	return n
}

// unlimited is number for a file that may say "max", which memory limits show as the largest number.
func unlimited(dir, name string) uint64 {
	n, text := one(dir, name)
	if text == "max" {
		return math.MaxUint64
	}
	return n
}

func one(dir, name string) (uint64, string) {
	if dir == "" {
		return 0, ""
	}
	text, err := read(filepath.Join(dir, name))
	if err != nil {
		return 0, ""
	}
	text = strings.TrimSpace(text)
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, text
	}
	return n, text
}

func numbers(dir, name string) []uint64 {
	var out []uint64
	for _, fields := range lines(filepath.Join(dir, name)) {
		for _, f := range fields {
			if n, err := strconv.ParseUint(f, 10, 64); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}
