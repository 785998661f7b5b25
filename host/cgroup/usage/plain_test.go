package usage

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/host/cgroup"
)

// plain reads a cgroup's files in the plainest way: whole, split into lines and words. "" is a
// folder of version 2.
type plain struct{ dir, memory, cpuacct, pids string }

func (p plain) text(controller, name string) (string, bool) {
	data, err := os.ReadFile(filepath.Join(p.dir, controller, "c", name))
	return string(data), err == nil
}

// number is 0 for no limit.
func (p plain) number(controller, name string) (uint64, bool) {
	text, there := p.text(controller, name)
	if text = strings.TrimSpace(text); text == "max" {
		return 0, there
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if n >= 9223372036854710272 {
		n = 0
	}
	return n, there && err == nil
}

// table has the first number of each name, also one that is none.
func (p plain) table(controller, name string) (numbers map[string]uint64, good map[string]bool, there bool) {
	numbers, good = map[string]uint64{}, map[string]bool{}
	text, there := p.text(controller, name)
	for _, line := range strings.Split(text, "\n") {
		key, value, two := strings.Cut(line, " ")
		if _, known := numbers[key]; !two || known {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		numbers[key], good[key] = n, err == nil
	}
	return numbers, good, there
}

func (p plain) use() (m Memory, ok bool) {
	names := []string{"memory.usage_in_bytes", "memory.limit_in_bytes", "memory.memsw.usage_in_bytes", "memory.memsw.limit_in_bytes", "total_inactive_file", "total_rss", "total_pgfault", "total_pgmajfault"}
	if p.memory == "" {
		names = []string{"memory.current", "memory.max", "memory.swap.current", "memory.swap.max", "inactive_file", "anon", "pgfault", "pgmajfault"}
	}
	usage, ok1 := p.number(p.memory, names[0])
	stat, good, ok2 := p.table(p.memory, "memory.stat")
	if !ok1 || !ok2 {
		return m, false
	}
	m = Memory{Usage: usage, RSS: stat[names[5]], Faults: stat[names[6]], Major: stat[names[7]]}
	m.WorkingSet = usage - min(usage, stat[names[4]])
	const most = uint64(9223372036854710272)
	if !good["hierarchical_memory_limit"] || stat["hierarchical_memory_limit"] < most {
		if n, ok := p.number(p.memory, names[1]); ok {
			m.Limit = n
		}
	}
	if good["hierarchical_memsw_limit"] && stat["hierarchical_memsw_limit"] >= most {
		m.HasSwap, m.Swap = true, stat["total_swap"]
		return m, true
	}
	swap, ok := p.number(p.memory, names[2])
	if !ok {
		return m, true
	}
	limit, ok := p.number(p.memory, names[3])
	if !ok {
		limit = 0
	}
	m.HasSwap, m.SwapFile = true, limit
	switch {
	case p.memory == "":
		m.Swap, m.SwapLimit = swap, limit
	case limit > m.Limit && m.Limit > 0:
		m.SwapLimit = limit - m.Limit
		fallthrough
	default:
		m.Swap = swap - min(swap, usage)
	}
	return m, true
}

// The reader says what a plain one does, whatever is in the files, and of files that are missing.
func TestLikePlain(t *testing.T) {
	keys := []string{
		"total_inactive_file", "total_rss", "total_pgfault", "total_pgmajfault", "hierarchical_memory_limit", "hierarchical_memsw_limit", "total_swap", "rss",
		"inactive_file", "anon", "pgfault", "pgmajfault", "usage_usec", "total_rss_huge", "", "anon_thp",
	}
	measured := 0
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 7))
		number := func() string {
			return []string{
				"0", "max", "-1", "", "9223372036854771712", "9223372036854710272", "9223372036854710271", "18446744073709551615", "99999999999999999999999", "1 2", "x", "\x00",
				fmt.Sprint(random.IntN(5000)), fmt.Sprint(random.Uint64()), fmt.Sprint(random.IntN(5000)), fmt.Sprint(random.IntN(5000)),
			}[random.IntN(16)]
		}
		p := plain{dir: t.TempDir(), memory: "memory", cpuacct: "cpuacct", pids: "pids"}
		mounts := &cgroup.Mounts{V1: map[string]string{"memory": p.dir + "/memory", "cpuacct": p.dir + "/cpuacct", "pids": p.dir + "/pids"}}
		names := map[string]string{"memory.usage_in_bytes": "memory", "memory.limit_in_bytes": "memory", "memory.memsw.usage_in_bytes": "memory", "memory.memsw.limit_in_bytes": "memory", "cpuacct.usage": "cpuacct", "pids.current": "pids"}
		tables := map[string]string{"memory.stat": "memory"}
		if seed%2 == 1 {
			p = plain{dir: p.dir}
			mounts = &cgroup.Mounts{Unified: p.dir}
			names = map[string]string{"memory.current": "", "memory.max": "", "memory.swap.current": "", "memory.swap.max": "", "pids.current": ""}
			tables = map[string]string{"memory.stat": "", "cpu.stat": ""}
		}
		files := map[string]string{}
		for name, controller := range names {
			files[filepath.Join(controller, "c", name)] = number() + []string{"\n", "", " \n\n"}[random.IntN(3)]
		}
		for name, controller := range tables {
			var text strings.Builder
			for range random.IntN(300) { // more than there is room for at first
				text.WriteString(keys[random.IntN(len(keys))] + []string{" ", " ", " ", "", "  ", "\t"}[random.IntN(6)] + number() + []string{"\n", "\n", "\n\n"}[random.IntN(3)])
			}
			files[filepath.Join(controller, "c", name)] = strings.TrimRight(text.String(), []string{"", "\n"}[random.IntN(2)])
		}
		for name, text := range files {
			path := filepath.Join(p.dir, name)
			if random.IntN(12) == 0 { // as of a group that is removed meanwhile
				continue
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := NewReader(mounts)
		want, good := p.use()
		got, err := r.Memory("/c")
		if got.At = (time.Time{}); got != want && err == nil || (err == nil) != good {
			t.Fatalf("seed %d: memory %+v, %v; want %+v, %t in\n%q", seed, got, err, want, good, files)
		}
		if good {
			measured++
		}
		cpu, err := r.CPU("/c")
		n, good := p.number(p.cpuacct, "cpuacct.usage")
		if p.cpuacct == "" {
			stat, _, there := p.table("", "cpu.stat")
			n, good = stat["usage_usec"]*1000, there
		}
		if (err == nil) != good || good && uint64(cpu.Usage) != n {
			t.Fatalf("seed %d: processor time %d, %v; want %d, %t in\n%q", seed, cpu.Usage, err, n, good, files)
		}
		n, good = p.number(p.pids, "pids.current")
		if count, err := r.Processes("/c"); (err == nil) != good || good && count != n {
			t.Fatalf("seed %d: %d processes, %v; want %d, %t in\n%q", seed, count, err, n, good, files)
		}
	}
	if measured < 50 {
		t.Errorf("only %d groups could be measured", measured)
	}
}

// Counts of devices are the same from both versions' files; a device that is named only has none.
func TestDeviceCounts(t *testing.T) {
	root := tree(t, map[string]string{
		"c/io.stat": "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=9\n7:1 \n259:3 dios=1 wios=18446744073709551615 rbytes=99999999999999999999\nx rbytes=1\n8:0 wios=5\n",
		"c/blkio.throttle.io_service_bytes_recursive": "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\n259:3 Discard 1\nTotal 4\n",
		"c/blkio.throttle.io_serviced":                "8:0 Read 3\n8:0 Write 5\n259:3 Write 18446744073709551615\n",
	})
	want := []Device{{Major: 8, ReadBytes: 1, WriteBytes: 2, Reads: 3, Writes: 5}, {Major: 259, Minor: 3, Writes: 1<<64 - 1}}
	if got := Devices2((&cgroup.Mounts{Unified: root}).Group("/c")); !slices.Equal(got, want) {
		t.Errorf("version 2: %+v", got)
	}
	if got := devices1((&cgroup.Mounts{V1: map[string]string{"blkio": root}}).Group("/c")); !slices.Equal(got, want) {
		t.Errorf("version 1: %+v", got)
	}
	if got := Devices2((&cgroup.Mounts{Unified: root}).Group("/gone")); got != nil {
		t.Errorf("of none: %+v", got)
	}
}
