package usage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/cgroup"
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
	r := NewReader(&cgroup.Mounts{V1: map[string]string{
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
	// What the table says of limits is taken from there; a limit that is one is the cgroup's own
	// file's.
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
	r := NewReader(&cgroup.Mounts{Unified: root})
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

// A file that does not fit into the first read is read whole.
func TestLongTable(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "key%d %d\n", i, i)
	}
	root := tree(t, map[string]string{"c/memory.stat": text.String(), "c/memory.current": strings.Repeat(" ", 70) + "7\n"})
	r := NewReader(&cgroup.Mounts{Unified: root})
	table, err := table(nil, r.mounts.Group("/c"), "memory", "memory.stat")
	if err != nil || table.Of("key0") != 0 || table.Of("key999") != 999 {
		t.Errorf("%d bytes, %v", len(table), err)
	}
	if n, err := number(r.mounts.Group("/c"), "memory", "memory.current"); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
