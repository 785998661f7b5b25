// Package stats measures: what a container or a pod uses, from its cgroup (version 1 and 2), and what a pod costs
// beyond its containers' own work, from its processes.
//
// Everything is a plain read of a few small files; nothing is collected in the background.
package stats

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
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
	// SwapFile is what the kernel's own file of the limit says, 0 = none: memory and swap together on version 1, swap
	// alone on version 2.
	SwapFile uint64
}

// Available is the limit minus the working set, 0 if there is no limit.
func (m Memory) Available() uint64 {
	if m.Limit <= m.WorkingSet {
		return 0
	}
	return m.Limit - m.WorkingSet
}

// Reader reads cgroups. A cgroup is named by its path below the hierarchies' mount points.
//
// # Errors
//
// All methods answer ErrNotFound for a cgroup that is not there (any more).
type Reader struct {
	hierarchy *cgroup.Hierarchy
	pageSizes []string // of huge pages
}

// NewReader returns a reader of a machine's cgroups.
func NewReader(h *cgroup.Hierarchy) *Reader {
	return &Reader{hierarchy: h, pageSizes: pageSizes("/sys/kernel/mm/hugepages")}
}

// CPU returns the processor time used by a cgroup and all below it.
func (r *Reader) CPU(cg string) (CPU, error) {
	if r.hierarchy.Unified != "" {
		stat, err := r.table(cg, "cpu", "cpu.stat")
		if err != nil {
			return CPU{}, err
		}
		return CPU{At: time.Now(), Usage: time.Duration(stat["usage_usec"]) * time.Microsecond}, nil
	}
	n, err := r.number(cg, "cpuacct", "cpuacct.usage")
	if err != nil {
		return CPU{}, err
	}
	return CPU{At: time.Now(), Usage: time.Duration(n)}, nil
}

// Memory returns the memory used by a cgroup and all below it.
func (r *Reader) Memory(cg string) (Memory, error) {
	m, _, err := r.memory(cg)
	return m, err
}

// memory also returns the table that most of it is from.
func (r *Reader) memory(cg string) (Memory, map[string]uint64, error) {
	names := struct{ usage, limit, swap, swapLimit, inactive, anon, faults, major string }{
		"memory.usage_in_bytes", "memory.limit_in_bytes", "memory.memsw.usage_in_bytes", "memory.memsw.limit_in_bytes",
		"total_inactive_file", "total_rss", "total_pgfault", "total_pgmajfault",
	}
	v2 := r.hierarchy.Unified != ""
	if v2 {
		names.usage, names.limit, names.swap, names.swapLimit = "memory.current", "memory.max", "memory.swap.current", "memory.swap.max"
		names.inactive, names.anon, names.faults, names.major = "inactive_file", "anon", "pgfault", "pgmajfault"
	}
	usage, err := r.number(cg, "memory", names.usage)
	if err != nil {
		return Memory{}, nil, err
	}
	stat, err := r.table(cg, "memory", "memory.stat")
	if err != nil {
		return Memory{}, nil, err
	}
	m := Memory{
		At: time.Now(), Usage: usage, RSS: stat[names.anon],
		Faults: stat[names.faults], Major: stat[names.major],
	}
	if inactive := stat[names.inactive]; inactive < usage {
		m.WorkingSet = usage - inactive
	}
	// Version 1 says beside the counters whether the cgroup or any above it has a limit; mostly none has, and its own
	// file is not worth reading.
	if limit, told := stat["hierarchical_memory_limit"]; !told || limit < unlimited {
		if m.Limit, err = r.number(cg, "memory", names.limit); err != nil {
			m.Limit = 0 // the root has none
		}
	}
	if limit, told := stat["hierarchical_memsw_limit"]; told && limit >= unlimited {
		m.HasSwap, m.Swap = true, stat["total_swap"]
		return m, stat, nil
	}
	swap, err := r.number(cg, "memory", names.swap)
	if err != nil {
		return m, stat, nil
	}
	limit, _ := r.number(cg, "memory", names.swapLimit)
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
	return r.number(cg, "pids", "pids.current")
}

// unlimited is what version 1 writes for "no limit": the largest page counter, in bytes.
const unlimited = math.MaxInt64 &^ (1<<16 - 1)

// cpuMax reads a quota and its period, in microseconds, from version 2's one file; no quota is 0.
func (r *Reader) cpuMax(cg string) (quota, period uint64) {
	data, err := readFile(r.hierarchy.File(cg, "cpu", "cpu.max"))
	if err != nil {
		return 0, 0
	}
	a, b, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	period, err = strconv.ParseUint(b, 10, 64)
	if err != nil {
		return 0, 0
	}
	if quota, err = strconv.ParseUint(a, 10, 64); err != nil {
		quota = 0 // "max"
	}
	return quota, period
}

// number reads a file of one number; no limit is 0.
func (r *Reader) number(cg, controller, name string) (uint64, error) {
	var buf [64]byte
	data, err := readShort(r.hierarchy.File(cg, controller, name), buf[:])
	if err != nil {
		return 0, wrap(cg, err)
	}
	text := strings.TrimSpace(string(data))
	if text == "max" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, wrap(cg, fmt.Errorf("file %s: %w", name, err))
	}
	if n >= unlimited {
		return 0, nil
	}
	return n, nil
}

// table reads a file of "key number" lines.
func (r *Reader) table(cg, controller, name string) (map[string]uint64, error) {
	var buf [4096]byte
	data, err := readShort(r.hierarchy.File(cg, controller, name), buf[:])
	if err != nil {
		return nil, wrap(cg, err)
	}
	text := string(data)
	out := make(map[string]uint64, strings.Count(text, "\n"))
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if n, err := strconv.ParseUint(value, 10, 64); ok && err == nil {
			out[key] = n
		}
	}
	return out, nil
}

func wrap(cg string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) { // removed before it was opened, or after
		return fmt.Errorf("read cgroup %q: %w", cg, errdefs.ErrNotFound)
	}
	return fmt.Errorf("read cgroup %q: %w", cg, err)
}
