package cgroup

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/encode"
)

// Types of the messages that hold a group's figures.
const (
	typeV1 = "io.containerd.cgroups.v1.Metrics"
	typeV2 = "io.containerd.cgroups.v2.Metrics"
)

// Metrics reads the group's figures and returns them as containerd's callers decode them: the name of a message and the encoded
// message, see containerd/cgroups' cgroup1/stats and cgroup2/stats. What a kernel does not count is 0. ErrNotFound when the
// group is gone.
//
// The messages are encoded here: their generated types would cost every shim that is asked for figures 170 KiB.
func (g *Group) Metrics() (name string, encoded []byte, err error) {
	if _, err := os.Stat(g.representative()); err != nil {
		return "", nil, fmt.Errorf("figures of cgroup %q: %w", g.path, errdefs.ErrNotFound)
	}
	if g.unified {
		return typeV2, metrics2(g.dirs[""]), nil
	}
	return typeV1, metrics1(g.dir), nil
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

// Names of figures in files of the older hierarchies, in the order of the fields of their messages, from 1 on.
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

// metrics1 reads the older hierarchies.
func metrics1(dir func(controller string) string) encode.Message {
	cpu, cpuacct, memory, pids := dir("cpu"), dir("cpuacct"), dir("memory"), dir("pids")
	ticks := figures(filepath.Join(cpuacct, "cpuacct.stat"), []string{"user", "system"})
	var usage encode.Message
	usage.Number(1, number(cpuacct, "cpuacct.usage"))
	usage.Number(2, ticks[1]*tick)
	usage.Number(3, ticks[0]*tick)
	usage.List(4, numbers(cpuacct, "cpuacct.usage_percpu"))
	var processors encode.Message
	processors.Message(1, usage)
	processors.Message(2, encode.Numbers(figures(filepath.Join(cpu, "cpu.stat"), throttleV1)))
	counted := encode.Numbers(figures(filepath.Join(memory, "memory.stat"), memoryV1))
	for i, prefix := range []string{"memory", "memory.memsw", "memory.kmem", "memory.kmem.tcp"} {
		counted.Message(33+i, entry1(memory, prefix))
	}
	var m encode.Message
	m.Message(2, pidsOf(pids))
	m.Message(3, processors)
	m.Message(4, counted)
	m.Message(5, blkio1(dir("blkio")))
	m.Message(9, encode.Numbers(figures(filepath.Join(memory, "memory.oom_control"), oomControlV1)))
	return m
}

func pidsOf(dir string) encode.Message {
	return encode.Numbers([]uint64{number(dir, "pids.current"), number(dir, "pids.max")})
}

func entry1(dir, prefix string) encode.Message {
	return encode.Numbers([]uint64{
		number(dir, prefix+".limit_in_bytes"), number(dir, prefix+".usage_in_bytes"),
		number(dir, prefix+".max_usage_in_bytes"), number(dir, prefix+".failcnt"),
	})
}

func blkio1(dir string) encode.Message {
	var m encode.Message
	for i, name := range []string{"blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"} {
		for _, fields := range lines(filepath.Join(dir, name)) { // "major:minor operation value"
			if len(fields) != 3 {
				continue
			}
			major, minor, ok := device(fields[0])
			value, err := strconv.ParseUint(fields[2], 10, 64)
			if !ok || err != nil {
				continue
			}
			var e encode.Message
			e.Text(1, fields[1])
			e.Number(3, major)
			e.Number(4, minor)
			e.Number(5, value)
			m.Message(1+i, e)
		}
	}
	return m
}

// Names of figures in files of the unified hierarchy, in the order of the fields of their messages, from 1 on.
var (
	cpuV2          = []string{"usage_usec", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec", "", "nr_bursts", "burst_usec"}
	memoryEventsV2 = []string{"low", "high", "max", "oom", "oom_kill", "oom_group_kill"}
	ioV2           = []string{"rbytes", "wbytes", "rios", "wios"} // from 3 on
	memoryV2       = []string{
		"anon", "file", "kernel_stack", "slab", "sock", "shmem", "file_mapped", "file_dirty", "file_writeback", "anon_thp",
		"inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable", "slab_reclaimable", "slab_unreclaimable",
		"pgfault", "pgmajfault", "workingset_refault_anon", "workingset_activate_anon", "workingset_nodereclaim",
		"pgrefill", "pgscan", "pgsteal", "pgactivate", "pgdeactivate", "pglazyfree", "pglazyfreed", "thp_fault_alloc", "thp_collapse_alloc",
		"workingset_refault_file", "workingset_activate_file", // these two are no fields: they are added to their like
	}
)

// metrics2 reads the unified hierarchy.
func metrics2(dir string) encode.Message {
	var m encode.Message
	m.Message(1, pidsOf(dir))
	processors, memory, io := encode.Numbers(figures(filepath.Join(dir, "cpu.stat"), cpuV2)), memory2(dir), io2(filepath.Join(dir, "io.stat"))
	pressure(&processors, 7, filepath.Join(dir, "cpu.pressure"))
	pressure(&memory, 38, filepath.Join(dir, "memory.pressure"))
	pressure(&io, 2, filepath.Join(dir, "io.pressure"))
	m.Message(2, processors)
	m.Message(4, memory)
	m.Message(6, io)
	m.Message(8, encode.Numbers(figures(filepath.Join(dir, "memory.events"), memoryEventsV2)))
	return m
}

func memory2(dir string) encode.Message {
	all := figures(filepath.Join(dir, "memory.stat"), memoryV2)
	fields := all[:31]
	fields[19] += all[31]
	fields[20] += all[32]
	return encode.Numbers(append(fields[:31:31],
		number(dir, "memory.current"), unlimited(dir, "memory.max"),
		number(dir, "memory.swap.current"), unlimited(dir, "memory.swap.max"),
		number(dir, "memory.peak"), number(dir, "memory.swap.peak")))
}

// io2 reads lines of "major:minor rbytes=… wbytes=… rios=… wios=…".
func io2(path string) encode.Message {
	var m encode.Message
	for _, fields := range lines(path) {
		major, minor, ok := device(fields[0])
		if !ok {
			continue
		}
		e := make([]uint64, 2+len(ioV2))
		e[0], e[1] = major, minor
		for _, field := range fields[1:] {
			name, value, _ := strings.Cut(field, "=")
			n, err := strconv.ParseUint(value, 10, 64)
			if i := slices.Index(ioV2, name); i >= 0 && err == nil {
				e[2+i] = n
			}
		}
		m.Message(1, encode.Numbers(e))
	}
	return m
}

// pressure appends the kernel's pressure stall information: lines of "some|full avg10=… avg60=… avg300=… total=…". Nothing where the
// kernel does not keep it.
func pressure(m *encode.Message, field int, path string) {
	var all encode.Message
	for _, fields := range lines(path) {
		kind := 1 + slices.Index([]string{"some", "full"}, fields[0])
		if kind == 0 {
			continue
		}
		var one encode.Message
		for _, f := range fields[1:] {
			name, value, _ := strings.Cut(f, "=")
			if name == "total" {
				total, _ := strconv.ParseUint(value, 10, 64)
				one.Number(4, total)
			} else if i := slices.Index([]string{"avg10", "avg60", "avg300"}, name); i >= 0 {
				average, _ := strconv.ParseFloat(value, 64)
				one.Float(1+i, average)
			}
		}
		all.Message(kind, one)
	}
	if len(all) > 0 {
		m.Message(field, all)
	}
}

func device(s string) (major, minor uint64, ok bool) {
	a, b, found := strings.Cut(s, ":")
	major, err1 := strconv.ParseUint(a, 10, 64)
	minor, err2 := strconv.ParseUint(b, 10, 64)
	return major, minor, found && err1 == nil && err2 == nil
}

// figures reads a file of "name value" lines and returns the values of the names that are asked for, 0 for one that is not there.
func figures(path string, names []string) []uint64 {
	out := make([]uint64, len(names))
	text, err := read(path)
	if err != nil {
		return out
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if i := slices.Index(names, name); i >= 0 && name != "" {
			out[i], _ = strconv.ParseUint(value, 10, 64)
		}
	}
	return out
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
