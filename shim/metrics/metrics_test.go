package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sunaba-project/sunaba/host/cgroup"
)

func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// unified is a group of version 2 whose files are in a directory.
func unified(dir string) *cgroup.Group { return (&cgroup.Mounts{Unified: dir}).Group("/") }

// decode reads a message as containerd's callers do. A field that its type does not know fails.
func decode(t *testing.T, encoded []byte, to proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(encoded, to); err != nil {
		t.Fatal(err)
	}
	if len(to.ProtoReflect().GetUnknown()) > 0 {
		t.Errorf("unknown fields in %v", to)
	}
}

// TestNamesOfFigures goes through the fields of containerd's messages in the order of their
// numbers.
func TestNamesOfFigures(t *testing.T) {
	for _, c := range []struct {
		message proto.Message
		names   []string
		other   map[string]string // fields that have other names than the kernel's figures
	}{
		{&v1.MemoryStat{}, memoryV1, map[string]string{"hierarchical_memsw_limit": "hierarchical_swap_limit"}},
		{&v1.MemoryOomControl{}, oomControlV1, nil},
		{&v1.Throttle{}, throttleV1, map[string]string{"nr_periods": "periods", "nr_throttled": "throttled_periods"}},
		{&v2.CPUStat{}, cpuV2, map[string]string{"": "psi"}},
		{&v2.MemoryStat{}, memoryV2[:31], map[string]string{
			"workingset_refault_anon": "workingset_refault", "workingset_activate_anon": "workingset_activate",
		}},
		{&v2.MemoryEvents{}, memoryEventsV2, nil},
	} {
		fields := c.message.ProtoReflect().Descriptor().Fields()
		for i, name := range c.names {
			want, ok := c.other[name]
			if !ok {
				want = name
			}
			field := fields.ByNumber(protoreflect.FieldNumber(i + 1))
			if field == nil || strings.ReplaceAll(string(field.Name()), "_", "") != strings.ReplaceAll(want, "_", "") {
				t.Errorf("%T: field %d is %v, its figure %q", c.message, i+1, field, name)
			}
		}
	}
}

func TestMetricsOfVersion2(t *testing.T) {
	var m v2.Metrics
	decode(t, metrics2(unified(files(t, map[string]string{
		"cpu.stat":            "usage_usec 100\nuser_usec 60\nsystem_usec 40\nnr_periods 3\nnr_throttled 2\nthrottled_usec 1\n",
		"memory.current":      "4096\n",
		"memory.max":          "max\n",
		"memory.peak":         "8192\n",
		"memory.swap.current": "1\n",
		"memory.swap.max":     "2\n",
		"memory.stat":         "anon 10\nfile 20\ninactive_file 5\npgfault 7\nworkingset_refault_anon 1\nworkingset_refault_file 2\n",
		"memory.events":       "low 0\nhigh 0\nmax 4\noom 2\noom_kill 1\n",
		"pids.current":        "3\n",
		"pids.max":            "max\n",
		"io.stat":             "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n\n",
		"cpu.pressure":        "some avg10=1.50 avg60=0.00 avg300=0.25 total=614\n", // of an old kernel
		"memory.pressure":     "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=2.00 avg300=0.00 total=7\n",
	}))), &m)
	got := fmt.Sprint(m.CPU.UsageUsec, m.CPU.UserUsec, m.CPU.SystemUsec, m.CPU.NrThrottled, m.Memory.Usage, m.Memory.UsageLimit,
		m.Memory.MaxUsage, m.Memory.SwapLimit, m.Memory.Anon, m.Memory.InactiveFile, m.Memory.WorkingsetRefault,
		m.MemoryEvents.OomKill, m.Pids.Current, m.Pids.Limit, len(m.Io.Usage), m.Io.Usage[0].Major, m.Io.Usage[0].Wios)
	want := "100 60 40 2 4096 18446744073709551615 8192 2 10 5 3 1 3 0 1 8 4"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	some, full := m.CPU.PSI.GetSome(), m.Memory.PSI.GetFull()
	got = fmt.Sprint(some.GetAvg10(), some.GetAvg60(), some.GetAvg300(), some.GetTotal(), m.CPU.PSI.Full != nil, full.GetAvg60(), full.GetTotal(), m.Io.PSI != nil)
	if want := "1.5 0 0.25 614 false 2 7 false"; got != want {
		t.Errorf("pressures: got  %s\nwant %s", got, want)
	}
}

func TestMetricsOfVersion1(t *testing.T) {
	dirs := map[string]string{
		"cpu":     files(t, map[string]string{"cpu.stat": "nr_periods 3\nnr_throttled 2\nthrottled_time 1\n"}),
		"cpuacct": files(t, map[string]string{"cpuacct.usage": "1000\n", "cpuacct.stat": "user 5\nsystem 6\n", "cpuacct.usage_percpu": "400 600\n"}),
		"memory": files(t, map[string]string{
			"memory.usage_in_bytes": "4096\n", "memory.limit_in_bytes": "8192\n", "memory.failcnt": "9\n",
			"memory.stat":        "cache 1\nrss 2\ntotal_inactive_file 3\nhierarchical_memory_limit 8192\n",
			"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n",
		}),
		"pids":  files(t, map[string]string{"pids.current": "2\n", "pids.max": "100\n"}),
		"blkio": files(t, map[string]string{"blkio.throttle.io_service_bytes_recursive": "8:0 Read 10\n8:0 Write 20\nTotal 30\n"}),
	}
	var m v1.Metrics
	decode(t, metrics1((&cgroup.Mounts{V1: dirs}).Group("/")), &m)
	got := fmt.Sprint(m.CPU.Usage.Total, m.CPU.Usage.User, m.CPU.Usage.Kernel, m.CPU.Usage.PerCPU, m.CPU.Throttling.ThrottledPeriods,
		m.Memory.Usage.Usage, m.Memory.Usage.Limit, m.Memory.Usage.Failcnt, m.Memory.RSS, m.Memory.TotalInactiveFile,
		m.MemoryOomControl.OomKill, m.Pids.Current, m.Pids.Limit, len(m.Blkio.IoServiceBytesRecursive), m.Blkio.IoServiceBytesRecursive[1].Value)
	want := "1000 50000000 60000000 [400 600] 2 4096 8192 9 2 3 7 2 100 2 20"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Metrics are encoded of the group that the kernel has, in the version that the machine has.
func TestEncode(t *testing.T) {
	g, err := cgroup.Open(fmt.Sprintf("/sunaba-metricstest-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Encode(g); !errdefs.IsNotFound(err) {
		t.Errorf("metrics of a group that is not there: %v", err)
	}
	if err := g.Create(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	name, encoded, err := Encode(g)
	if err != nil {
		t.Fatal(err)
	}
	if g.Unified() {
		decode(t, encoded, &v2.Metrics{})
	} else {
		decode(t, encoded, &v1.Metrics{})
	}
	if want := map[bool]string{true: typeV2, false: typeV1}[g.Unified()]; name != want {
		t.Errorf("the message is %q, want %q", name, want)
	}
}
