// Package usage reads what cgroups use of the machine, in both versions of their interface:
// processors, memory, devices, huge pages, and the pressure on them.
//
// Everything is a plain read of a few small files; nothing is collected in the background.
package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/kernelfile"
)

// CPU is time used.
type CPU struct {
	At    time.Time
	Usage time.Duration // of all cores, since the cgroup was made
}

// Memory is memory used, in bytes.
type Memory struct {
	At         time.Time
	Usage      uint64
	WorkingSet uint64 // usage without what the kernel would give back first (inactive files)
	RSS        uint64 // anonymous memory
	Limit      uint64 // 0 = none
	Faults     uint64 // page faults, major ones included
	Major      uint64 // page faults that read from a disk

	Swap      uint64
	SwapLimit uint64 // 0 = none or not known
	HasSwap   bool   // the kernel accounts for swap
	// SwapFile is what the kernel's own file of the limit says, 0 = none: memory and swap together
	// on version 1, swap alone on version 2.
	SwapFile uint64
}

// Available is the limit minus the working set, 0 if there is no limit.
func (m Memory) Available() uint64 {
	if m.Limit <= m.WorkingSet {
		return 0
	}
	return m.Limit - m.WorkingSet
}

// Reader reads cgroups, by their paths below the mount points.
//
// # Errors
//
// All methods return ErrNotFound for a cgroup that does not exist (any more).
type Reader struct {
	mounts    *cgroup.Mounts
	pageSizes []string // of huge pages
}

// NewReader returns a reader of a machine's cgroups.
func NewReader(m *cgroup.Mounts) *Reader {
	return &Reader{mounts: m, pageSizes: cgroups.HugePageSizes()}
}

// CPU returns the processor time used by a cgroup and all below it.
func (r *Reader) CPU(cg string) (CPU, error) {
	g := r.mounts.Group(cg)
	if g.Unified() {
		var room [1024]byte
		stat, err := table(room[:0], g, "cpu", "cpu.stat")
		if err != nil {
			return CPU{}, err
		}
		return CPU{At: time.Now(), Usage: time.Duration(stat.Of("usage_usec")) * time.Microsecond}, nil
	}
	n, err := number(g, "cpuacct", "cpuacct.usage")
	if err != nil {
		return CPU{}, err
	}
	return CPU{At: time.Now(), Usage: time.Duration(n)}, nil
}

// Memory returns the memory used by a cgroup and all below it.
func (r *Reader) Memory(cg string) (Memory, error) {
	var room [4096]byte
	m, _, err := memory(room[:0], r.mounts.Group(cg))
	return m, err
}

// memory also returns the table that most of it comes from, in the given room.
func memory(room []byte, g *cgroup.Group) (Memory, cgroup.Table, error) {
	names := struct{ usage, limit, swap, swapLimit, inactive, anon, faults, major string }{
		"memory.usage_in_bytes", "memory.limit_in_bytes", "memory.memsw.usage_in_bytes", "memory.memsw.limit_in_bytes",
		"total_inactive_file", "total_rss", "total_pgfault", "total_pgmajfault",
	}
	v2 := g.Unified()
	if v2 {
		names.usage, names.limit, names.swap, names.swapLimit = "memory.current", "memory.max", "memory.swap.current", "memory.swap.max"
		names.inactive, names.anon, names.faults, names.major = "inactive_file", "anon", "pgfault", "pgmajfault"
	}
	usage, err := number(g, "memory", names.usage)
	if err != nil {
		return Memory{}, nil, err
	}
	stat, err := table(room, g, "memory", "memory.stat")
	if err != nil {
		return Memory{}, nil, err
	}
	m := Memory{
		At: time.Now(), Usage: usage, RSS: stat.Of(names.anon),
		Faults: stat.Of(names.faults), Major: stat.Of(names.major),
	}
	if inactive := stat.Of(names.inactive); inactive < usage {
		m.WorkingSet = usage - inactive
	}
	// Version 1 says beside the counters whether the cgroup or any above it has a limit; mostly
	// none has, and its own file is not worth reading.
	if limit, told := stat.Find("hierarchical_memory_limit"); !told || limit < unlimited {
		if m.Limit, err = number(g, "memory", names.limit); err != nil {
			m.Limit = 0 // the root has none
		}
	}
	if limit, told := stat.Find("hierarchical_memsw_limit"); told && limit >= unlimited {
		m.HasSwap, m.Swap = true, stat.Of("total_swap")
		return m, stat, nil
	}
	swap, err := number(g, "memory", names.swap)
	if err != nil {
		return m, stat, nil
	}
	limit, _ := number(g, "memory", names.swapLimit)
	m.HasSwap, m.SwapFile = true, limit
	if v2 {
		m.Swap, m.SwapLimit = swap, limit
		return m, stat, nil
	}
	m.Swap = swap - min(swap, usage) // version 1 counts memory and swap together
	if limit > m.Limit && m.Limit > 0 {
		m.SwapLimit = limit - m.Limit
	}
	return m, stat, nil
}

// Processes returns how many processes and threads are in a cgroup and below it.
func (r *Reader) Processes(cg string) (uint64, error) {
	return number(r.mounts.Group(cg), "pids", "pids.current")
}

// unlimited is what version 1 writes for "no limit": the largest page counter, in bytes.
const unlimited = math.MaxInt64 &^ (1<<16 - 1)

// cpuMax reads a quota and its period, in microseconds, from version 2's one file; no quota is 0.
func cpuMax(g *cgroup.Group) (quota, period uint64) {
	text, _ := kernelfile.ReadRecord(g.File("cpu", "cpu.max")) // what cannot be read is 0
	var first string
	_, _ = fmt.Sscan(text, &first, &period)
	quota, _ = strconv.ParseUint(first, 10, 64) // or "max"
	return quota, period
}

// number reads a file of one number; no limit is 0.
func number(g *cgroup.Group, controller, name string) (uint64, error) {
	n, err := g.Number(controller, name)
	if err != nil {
		return 0, wrap(g, err)
	}
	if n >= unlimited {
		return 0, nil
	}
	return n, nil
}

// table reads a file of "name number" lines.
func table(room []byte, g *cgroup.Group, controller, name string) (cgroup.Table, error) {
	t, err := g.Table(room, controller, name)
	if err != nil {
		return nil, wrap(g, err)
	}
	return t, nil
}

func wrap(g *cgroup.Group, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) { // removed before it was opened, or after
		return fmt.Errorf("read cgroup %q: %w", g.Path(), errdefs.ErrNotFound)
	}
	return fmt.Errorf("read cgroup %q: %w", g.Path(), err)
}
