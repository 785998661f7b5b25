// Package metrics encodes what the kernel counts of a cgroup as containerd's callers decode it.
//
// The messages are encoded here: their generated types would cost every shim that is asked for
// metrics 170 KiB.
package metrics

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/cgroup/usage"
	"github.com/sunaba-project/sunaba/host/kernelfile"
	"github.com/sunaba-project/sunaba/shim/message"
)

// Types of the messages that hold a group's metrics.
const (
	typeV1 = "io.containerd.cgroups.v1.Metrics"
	typeV2 = "io.containerd.cgroups.v2.Metrics"
)

// Encode reads a group's metrics and returns the name of a message and the encoded message, see
// containerd/cgroups' cgroup1/stats and cgroup2/stats. What a kernel does not count is 0.
// ErrNotFound if the group does not exist.
func Encode(g *cgroup.Group) (name string, encoded []byte, err error) {
	switch {
	case !g.Exists():
		return "", nil, fmt.Errorf("read metrics of cgroup %q: %w", g.Path(), errdefs.ErrNotFound)
	case g.Unified():
		return typeV2, metrics2(g), nil
	}
	return typeV1, metrics1(g), nil
}

// Names of figures in files of version 1, in the order of the fields of their messages, from 1 on.
var (
	oomControlV1 = []string{"oom_kill_disable", "under_oom", "oom_kill"}
	throttleV1   = []string{"nr_periods", "nr_throttled", "throttled_time"}
	memoryV1     = []string{
		"cache", "rss", "rss_huge", "mapped_file", "dirty", "writeback", "pgpgin", "pgpgout", "pgfault", "pgmajfault",
		"inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable",
		"hierarchical_memory_limit", "hierarchical_memsw_limit",
		"total_cache", "total_rss", "total_rss_huge", "total_mapped_file", "total_dirty", "total_writeback",
		"total_pgpgin", "total_pgpgout", "total_pgfault", "total_pgmajfault", "total_inactive_anon", "total_active_anon",
		"total_inactive_file", "total_active_file", "total_unevictable",
	}
)

// tick is a USER_HZ tick in nanoseconds: 100 a second on every architecture we build for.
const tick = 10_000_000

// metrics1 reads a group of version 1.
func metrics1(g *cgroup.Group) []byte {
	ticks := g.Figures("cpuacct", "cpuacct.stat", []string{"user", "system"})
	used := message.Fields[any](number(g, "cpuacct", "cpuacct.usage"), ticks[1]*tick, ticks[0]*tick,
		numbers(g.File("cpuacct", "cpuacct.usage_percpu")))
	processors := message.Fields(used, message.Fields(g.Figures("cpu", "cpu.stat", throttleV1)...))
	memory := message.Fields(g.Figures("memory", "memory.stat", memoryV1)...)
	for i, prefix := range []string{"memory", "memory.memsw", "memory.kmem", "memory.kmem.tcp"} {
		memory = message.Append(memory, 33+i, entry1(g, prefix))
	}
	oom := message.Fields(g.Figures("memory", "memory.oom_control", oomControlV1)...)
	return message.Fields(nil, pidsOf(g), processors, memory, blkio1(g), nil, nil, nil, oom)
}

// pidsOf shows no limit as 0.
func pidsOf(g *cgroup.Group) []byte {
	limit := number(g, "pids", "pids.max")
	if limit == cgroup.Max {
		limit = 0
	}
	return message.Fields(number(g, "pids", "pids.current"), limit)
}

func entry1(g *cgroup.Group, prefix string) []byte {
	return message.Fields(
		number(g, "memory", prefix+".limit_in_bytes"), number(g, "memory", prefix+".usage_in_bytes"),
		number(g, "memory", prefix+".max_usage_in_bytes"), number(g, "memory", prefix+".failcnt"),
	)
}

func blkio1(g *cgroup.Group) []byte {
	m := []byte{}
	for i, name := range []string{"blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"} {
		text, _ := kernelfile.Read(g.File("blkio", name)) // what cannot be read is missing
		for at, c := range usage.DeviceCounts(text) {
			m = message.Append(m, 1+i, message.Fields[any](c.Name, "", at.Major, at.Minor, c.Value))
		}
	}
	return m
}

// Names of figures in files of version 2, in the order of the fields of their messages, from 1 on.
var (
	cpuV2          = []string{"usage_usec", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec", "", "nr_bursts", "burst_usec"}
	memoryEventsV2 = []string{"low", "high", "max", "oom", "oom_kill", "oom_group_kill"}
	memoryV2       = []string{
		"anon", "file", "kernel_stack", "slab", "sock", "shmem", "file_mapped", "file_dirty", "file_writeback", "anon_thp",
		"inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable", "slab_reclaimable", "slab_unreclaimable",
		"pgfault", "pgmajfault", "workingset_refault_anon", "workingset_activate_anon", "workingset_nodereclaim",
		"pgrefill", "pgscan", "pgsteal", "pgactivate", "pgdeactivate", "pglazyfree", "pglazyfreed", "thp_fault_alloc", "thp_collapse_alloc",
		"workingset_refault_file", "workingset_activate_file", // these two are no fields: they are added to their like
	}
)

// metrics2 reads a group of version 2.
func metrics2(g *cgroup.Group) []byte {
	processors := pressure(message.Fields(g.Figures("cpu", "cpu.stat", cpuV2)...), 7, g, "cpu")
	memory, io := pressure(memory2(g), 38, g, "memory"), pressure(io2(g), 2, g, "io")
	events := message.Fields(g.Figures("memory", "memory.events", memoryEventsV2)...)
	return message.Fields(pidsOf(g), processors, nil, memory, nil, io, nil, events)
}

func memory2(g *cgroup.Group) []byte {
	all := g.Figures("memory", "memory.stat", memoryV2)
	fields := all[:31]
	fields[19] += all[31]
	fields[20] += all[32]
	for _, name := range []string{"current", "max", "swap.current", "swap.max", "peak", "swap.peak"} {
		fields = append(fields[:len(fields):len(fields)], number(g, "memory", "memory."+name))
	}
	return message.Fields(fields...)
}

// io2 has one entry for each device.
func io2(g *cgroup.Group) []byte {
	m := []byte{}
	for _, d := range usage.Devices2(g) {
		m = message.Append(m, 1, message.Fields(d.Major, d.Minor, d.ReadBytes, d.WriteBytes, d.Reads, d.Writes))
	}
	return m
}

// pressure appends the kernel's pressure stall information. Nothing where the kernel does not keep
// it.
func pressure(m []byte, field int, g *cgroup.Group, resource string) []byte {
	p := usage.ReadPressure(g.Dir(""), resource)
	if p == nil {
		return m
	}
	all := message.Fields(stall(p.Some))
	if p.HasFull {
		all = message.Append(all, 2, stall(p.Full))
	}
	return message.Append(m, field, all)
}

func stall(s usage.Stall) []byte {
	return message.Fields[any](s.Avg10, s.Avg60, s.Avg300, uint64(s.Total/time.Microsecond))
}

// number reads a file that holds one number, 0 if it does not.
func number(g *cgroup.Group, controller, name string) uint64 {
	n, _ := g.Number(controller, name)
	return n
}

// numbers reads a file of numbers as a repeated field holds them.
func numbers(path string) (packed []byte) {
	text, _ := kernelfile.ReadRecord(path) // what cannot be read is missing
	for field := range strings.FieldsSeq(text) {
		if n, err := strconv.ParseUint(field, 10, 64); err == nil {
			packed = protowire.AppendVarint(packed, n)
		}
	}
	return packed
}
