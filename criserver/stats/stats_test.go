package stats

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestVersion1(t *testing.T) {
	root := tree(t, map[string]string{
		"cpuacct/pod/c/cpuacct.usage":                   "123456789\n",
		"memory/pod/c/memory.usage_in_bytes":            "1000000\n",
		"memory/pod/c/memory.limit_in_bytes":            "2000000\n",
		"memory/pod/c/memory.stat":                      "cache 5\ninactive_file 7\ntotal_rss 600000\ntotal_inactive_file 300000\ntotal_pgfault 42\ntotal_pgmajfault 3\n",
		"memory/pod/c/memory.memsw.usage_in_bytes":      "1500000\n",
		"memory/pod/c/memory.memsw.limit_in_bytes":      "3000000\n",
		"memory/free/memory.usage_in_bytes":             "10\n",
		"memory/free/memory.limit_in_bytes":             "9223372036854771712\n",
		"memory/free/memory.stat":                       "total_inactive_file 20\n",
		"memory/told/memory.usage_in_bytes":             "1000\n",
		"memory/told/memory.stat":                       "hierarchical_memory_limit 9223372036854771712\nhierarchical_memsw_limit 9223372036854771712\ntotal_swap 30\n",
		"memory/half/memory.usage_in_bytes":             "1000\n",
		"memory/half/memory.stat":                       "hierarchical_memory_limit 4000\nhierarchical_memsw_limit 9223372036854771712\ntotal_swap 0\n",
		"memory/half/memory.limit_in_bytes":             "5000\n",
		"pids/pod/c/pids.current":                       "4\n",
		"memory/broken/memory.usage_in_bytes":           "many\n",
		"memory/broken/memory.stat":                     "\n",
		"cpuacct/broken/cpuacct.usage_with_other_names": "1\n",
	})
	r := NewReader(&cgroup.Hierarchy{V1: map[string]string{
		"cpuacct": filepath.Join(root, "cpuacct"), "memory": filepath.Join(root, "memory"), "pids": filepath.Join(root, "pids"),
	}})
	if cpu, err := r.CPU("/pod/c"); err != nil || cpu.Usage != 123456789 || cpu.At.IsZero() {
		t.Errorf("cpu: %+v, %v", cpu, err)
	}
	m, err := r.Memory("/pod/c")
	m.At = time.Time{}
	want := Memory{
		Usage: 1000000, WorkingSet: 700000, RSS: 600000, Limit: 2000000, Faults: 42, Major: 3,
		Swap: 500000, SwapLimit: 1000000, HasSwap: true, SwapFile: 3000000,
	}
	if err != nil || m != want {
		t.Errorf("memory: %+v, %v", m, err)
	}
	if m.Available() != 1300000 {
		t.Errorf("available: %d", m.Available())
	}
	m, err = r.Memory("/free")
	if err != nil || m.Limit != 0 || m.WorkingSet != 0 || m.Available() != 0 || m.HasSwap {
		t.Errorf("unlimited memory: %+v, %v", m, err)
	}
	// What the table says of limits is taken from there; a limit that is one is the cgroup's own file's.
	m, err = r.Memory("/told")
	if err != nil || m.Limit != 0 || !m.HasSwap || m.Swap != 30 || m.SwapFile != 0 || m.SwapLimit != 0 {
		t.Errorf("memory of a cgroup that has no limit: %+v, %v", m, err)
	}
	m, err = r.Memory("/half")
	if err != nil || m.Limit != 5000 || !m.HasSwap || m.Swap != 0 {
		t.Errorf("memory of a cgroup with a limit above it: %+v, %v", m, err)
	}
	if n, err := r.Processes("/pod/c"); n != 4 || err != nil {
		t.Errorf("processes: %d, %v", n, err)
	}
	if _, err := r.CPU("/gone"); !errdefs.IsNotFound(err) {
		t.Errorf("cpu of a cgroup that is gone: %v", err)
	}
	if _, err := r.Memory("/gone"); !errdefs.IsNotFound(err) {
		t.Errorf("memory of a cgroup that is gone: %v", err)
	}
	if _, err := r.Memory("/broken"); err == nil || errdefs.IsNotFound(err) {
		t.Errorf("memory of a damaged file: %v", err)
	}
}

func TestVersion2(t *testing.T) {
	root := tree(t, map[string]string{
		"pod/c/cpu.stat":            "usage_usec 2500\nuser_usec 2000\nsystem_usec 500\n",
		"pod/c/memory.current":      "1000000\n",
		"pod/c/memory.max":          "max\n",
		"pod/c/memory.stat":         "anon 600000\nfile 400000\ninactive_file 300000\npgfault 42\npgmajfault 3\n",
		"pod/c/memory.swap.current": "4096\n",
		"pod/c/memory.swap.max":     "8192\n",
		"pod/c/pids.current":        "4\n",
	})
	r := NewReader(&cgroup.Hierarchy{Unified: root})
	if cpu, err := r.CPU("/pod/c"); err != nil || cpu.Usage != 2500*time.Microsecond {
		t.Errorf("cpu: %+v, %v", cpu, err)
	}
	m, err := r.Memory("/pod/c")
	m.At = time.Time{}
	want := Memory{
		Usage: 1000000, WorkingSet: 700000, RSS: 600000, Faults: 42, Major: 3,
		Swap: 4096, SwapLimit: 8192, HasSwap: true, SwapFile: 8192,
	}
	if err != nil || m != want {
		t.Errorf("memory: %+v, %v", m, err)
	}
}

const smaps = `00400000-00500000 r-xp 00000000 fe:00 1234  /bin/shim
Size:               1024 kB
Rss:                 800 kB
Pss:                 400 kB
Pss_Dirty:           100 kB
VmFlags: rd ex mr mw me
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
Size:               1024 kB
Pss:                 512 kB
7f0000100000-7f0000200000 rw-p 00000000 00:00 0  [anon:linear - memory]
Pss:                1000 kB
`

func TestProcessMemory(t *testing.T) {
	proc := tree(t, map[string]string{
		"7/smaps":        smaps,
		"7/smaps_rollup": "00400000-7f0000200000 ---p 00000000 00:00 0  [rollup]\nRss: 3000 kB\nPss:     1912 kB\nPss_Dirty: 3 kB\n",
	})
	for _, c := range []struct {
		name             string
		base, size, want uint64
	}{
		{"whole", 0, 0, 1912},
		{"without one mapping", 0x7f0000100000, 0x100000, 912},
		{"without two mappings", 0x7f0000000000, 0x200000, 400},
		{"half a mapping", 0x7f0000080000, 0x80000, 1912 - 256},
		{"reserved far beyond", 0x7f0000100000, 1 << 33, 912},
		{"elsewhere", 0x10000, 0x1000, 1912},
	} {
		got, err := ProcessMemory(proc, 7, c.base, c.size)
		if err != nil || got != c.want<<10 {
			t.Errorf("%s: %d, %v; want %d", c.name, got, err, c.want<<10)
		}
	}
	if _, err := ProcessMemory(proc, 8, 0, 0); !errdefs.IsNotFound(err) {
		t.Errorf("process that is gone: %v", err)
	}
	if n, err := ProcessMemory("/proc", os.Getpid(), 0, 0); err != nil || n < 1<<20 {
		t.Errorf("this process: %d, %v", n, err)
	}
}

func TestOverhead(t *testing.T) {
	root := tree(t, map[string]string{"pod/leaf/cpu.stat": "usage_usec 1000\n"})
	r := NewReader(&cgroup.Hierarchy{Unified: root})
	o, err := r.Overhead("/pod/leaf", []Part{
		{Name: "shim", PID: os.Getpid()},
		{Name: "engine", Container: "c", PID: os.Getpid(), CPU: 2 * time.Millisecond},
		{Name: "engine", Container: "gone", PID: 1 << 30},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Parts) != 2 || o.CPUNanos != 3_000_000 || o.MemoryBytes != o.Parts[0].MemoryBytes+o.Parts[1].MemoryBytes {
		t.Errorf("%+v", o)
	}
}

func TestSpare(t *testing.T) {
	root := tree(t, map[string]string{"pod/spare/cpu.stat": "usage_usec 1000\n", "pod/spare/cgroup.procs": "7\n12\n34\n"})
	r := NewReader(&cgroup.Hierarchy{Unified: root})
	got := r.Spare("/pod/spare", 7)
	if want := []Part{{Name: "spare", PID: 12, CPU: time.Millisecond}, {Name: "spare", PID: 34}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := r.Spare("/pod/none", 7); got != nil {
		t.Errorf("of no cgroup: %+v", got)
	}
}

func TestRates(t *testing.T) {
	r := NewRates()
	t0 := time.Now()
	at := func(ms, used int) (uint64, bool) {
		return r.NanoCores("c", CPU{At: t0.Add(time.Duration(ms) * time.Millisecond), Usage: time.Duration(used) * time.Millisecond})
	}
	for _, c := range []struct {
		ms, used int
		want     uint64
		ok       bool
	}{
		{0, 100, 0, false},
		{10, 110, 0, false}, // too close to say anything
		{1000, 600, 500_000_000, true},
		{1100, 700, 500_000_000, true}, // the rate before still stands
		{3000, 600, 0, true},
		{3100, 5, 0, false}, // a new cgroup of the same name
	} {
		if got, ok := at(c.ms, c.used); got != c.want || ok != c.ok {
			t.Errorf("at %d ms: %d, %t; want %d, %t", c.ms, got, ok, c.want, c.ok)
		}
	}
}

// Objects come and go for years; what is remembered of them stays bounded.
func TestRatesForget(t *testing.T) {
	r := NewRates()
	t0 := time.Now()
	for i := range 100 * firstSweep {
		r.NanoCores(fmt.Sprint("c", i), CPU{At: t0.Add(time.Duration(i) * time.Minute)})
	}
	if len(r.last) > firstSweep {
		t.Errorf("%d readings are remembered", len(r.last))
	}
}

func TestMappingLines(t *testing.T) {
	for _, line := range strings.Split("Rss: 1-2 kB|VmFlags: rd-x|x-y r|", "|") {
		if _, _, ok := mapping(line); ok {
			t.Errorf("%q was read as a mapping", line)
		}
	}
}

// A file that does not fit into the first read is read whole.
func TestLongTable(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "key%d %d\n", i, i)
	}
	root := tree(t, map[string]string{"c/memory.stat": text.String(), "c/memory.current": strings.Repeat(" ", 70) + "7\n"})
	r := NewReader(&cgroup.Hierarchy{Unified: root})
	table, err := r.table("/c", "memory", "memory.stat")
	if err != nil || len(table) != 1000 || table["key999"] != 999 {
		t.Errorf("%d keys, %v", len(table), err)
	}
	if n, err := r.number("/c", "memory", "memory.current"); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
