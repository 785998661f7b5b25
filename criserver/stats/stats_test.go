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

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/cgroup/usage"
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
	r := NewReader(&cgroup.Mounts{Unified: root})
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

func TestPrewarmed(t *testing.T) {
	root := tree(t, map[string]string{"pod/prewarmed/cpu.stat": "usage_usec 1000\n", "pod/prewarmed/cgroup.procs": "7\n12\n34\n"})
	r := NewReader(&cgroup.Mounts{Unified: root})
	got := r.Prewarmed("/pod/prewarmed", 7)
	if want := []Part{{Name: "prewarmed", PID: 12, CPU: time.Millisecond}, {Name: "prewarmed", PID: 34}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := r.Prewarmed("/pod/none", 7); got != nil {
		t.Errorf("of no cgroup: %+v", got)
	}
}

func TestRates(t *testing.T) {
	r := &Rates{}
	t0 := time.Now()
	at := func(ms, used int) (uint64, bool) {
		return r.NanoCores("c", usage.CPU{At: t0.Add(time.Duration(ms) * time.Millisecond), Usage: time.Duration(used) * time.Millisecond})
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
		{3050, 600, 0, true}, // also that of an idle one
		{3100, 5, 0, false},  // a new cgroup of the same name
	} {
		if got, ok := at(c.ms, c.used); got != c.want || ok != c.ok {
			t.Errorf("at %d ms: %d, %t; want %d, %t", c.ms, got, ok, c.want, c.ok)
		}
	}
}

// Objects come and go for years; what is remembered of them stays bounded.
func TestRatesForget(t *testing.T) {
	r := &Rates{}
	t0 := time.Now()
	for i := range 100 * firstSweep {
		r.NanoCores(fmt.Sprint("c", i), usage.CPU{At: t0.Add(time.Duration(i) * time.Minute)})
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

// Figures of this process: its own cgroups stand for a container's.
func TestTasks(t *testing.T) {
	root := t.TempDir()
	inner := filepath.Join(root, "c", "inner")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, pids := range map[string]string{filepath.Join(root, "c"): "1073741824\n", inner: fmt.Sprintln(os.Getpid())} {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pids), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(&cgroup.Mounts{Unified: root})
	got := r.Tasks("/c", os.Getpid())
	if got.Processes != 2 || got.Files < 3 || got.Sockets > got.Files || !got.HasMaxFiles || got.MaxFiles == 0 {
		t.Errorf("%+v", got)
	}
	if got := r.Tasks("/gone", 0); got != (Tasks{}) {
		t.Errorf("a cgroup that is gone: %+v", got)
	}
}

func TestInterfaces(t *testing.T) {
	links, err := parseInterfaces(`Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0:    1010      12    3    4    0     0          0         0      906      11    5    6    0     0       0          0
`)
	want := Interface{Name: "eth0", RxBytes: 1010, RxPackets: 12, RxErrors: 3, RxDropped: 4, TxBytes: 906, TxPackets: 11, TxErrs: 5, TxDropped: 6}
	if err != nil || len(links) != 1 || links[0] != want {
		t.Errorf("%+v, %v", links, err)
	}
	for _, line := range []string{"no interface", "eth0: 1 2 3 4 5 6 7 8 9 10 11", "eth0: 1 2 x 4 5 6 7 8 9 10 11 12"} {
		if links, err := parseInterfaces("a\nb\n" + line + "\n"); err == nil {
			t.Errorf("%q was read: %+v", line, links)
		}
	}
	// By a process and by entering the namespace the interfaces are the same; a process of another
	// one is not used.
	near, err := Interfaces("/proc/self/ns/net", 1<<30, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	far, err := Interfaces("/proc/self/ns/net", 1<<30)
	if err != nil || len(near) != len(far) {
		t.Fatalf("%+v and %+v, %v", near, far, err)
	}
	for i := range near {
		if near[i].Name != far[i].Name {
			t.Errorf("%+v and %+v", near[i], far[i])
		}
	}
}

// What a pod costs is what its containers use themselves and its overhead: the overhead that is in
// the pod's cgroup is not counted twice, and that of a shared shim, in another cgroup, is not taken
// from what the containers use.
func TestOwn(t *testing.T) {
	o := Overhead{MemoryBytes: 60, Parts: []PartUsage{{Name: "shim", Pods: 2, MemoryBytes: 51}, {Name: "pause", MemoryBytes: 2}, {Name: "engine", MemoryBytes: 7}}}
	for workingSet, want := range map[uint64]uint64{0: 0, 5: 0, 9: 0, 30: 21} {
		if got := o.Own(workingSet); got != want {
			t.Errorf("of a working set of %d, %d are the containers' own; want %d", workingSet, got, want)
		}
	}
}
