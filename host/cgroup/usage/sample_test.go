package usage

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/cgroup"
)

func TestSampleVersion1(t *testing.T) {
	root := tree(t, map[string]string{
		"cpuacct/c/cpuacct.usage":                           "5000000000\n",
		"cpuacct/c/cpuacct.stat":                            "user 300\nsystem 150\n",
		"cpu/c/cpu.stat":                                    "nr_periods 10\nnr_throttled 3\nthrottled_time 7000000000\n",
		"cpu/c/cpu.shares":                                  "512\n",
		"cpu/c/cpu.cfs_period_us":                           "100000\n",
		"cpu/c/cpu.cfs_quota_us":                            "20000\n",
		"memory/c/memory.usage_in_bytes":                    "1000\n",
		"memory/c/memory.max_usage_in_bytes":                "2000\n",
		"memory/c/memory.limit_in_bytes":                    "4096\n",
		"memory/c/memory.soft_limit_in_bytes":               "9223372036854771712\n",
		"memory/c/memory.failcnt":                           "6\n",
		"memory/c/memory.kmem.usage_in_bytes":               "77\n",
		"memory/c/memory.oom_control":                       "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
		"memory/c/memory.stat":                              "pgfault 1\npgmajfault 2\ntotal_cache 5\ntotal_mapped_file 4\ntotal_pgfault 11\ntotal_pgmajfault 12\n",
		"pids/c/pids.current":                               "3\n",
		"pids/c/pids.max":                                   "max\n",
		"hugetlb/c/hugetlb.2MB.usage_in_bytes":              "2097152\n",
		"hugetlb/c/hugetlb.2MB.max_usage_in_bytes":          "4194304\n",
		"blkio/c/blkio.throttle.io_service_bytes":           "8:0 Read 1\nTotal 1\n",
		"blkio/c/blkio.throttle.io_serviced_recursive":      "8:0 Read 2\n8:0 Write 3\n8:0 Total 5\nTotal 5\n",
		"blkio/old/blkio.throttle.io_service_bytes":         "8:16 Write 9\n8:x Write 9\n",
		"cpu/free/cpu.cfs_quota_us":                         "-1\n",
		"cpuacct/free/cpuacct.usage":                        "1\n",
		"memory/free/memory.usage_in_bytes":                 "1\n",
		"memory/free/memory.stat":                           "total_cache 1\n",
		"hybrid/c/cgroup.events":                            "populated 1\nfrozen 0\n",
		"hybrid/c/cpu.pressure":                             "some avg10=1.50 avg60=0.00 avg300=0.00 total=614\n",
		"hybrid/c/io.pressure":                              "some avg10=0.00 avg60=0.00 avg300=0.00 total=2\nfull avg10=0.00 avg60=0.00 avg300=0.25 total=1\n",
		"hybrid/empty/cgroup.events":                        "populated 0\nfrozen 0\n",
		"hybrid/empty/cpu.pressure":                         "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"blkio/c/blkio.throttle.io_service_bytes_recursive": "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 12288\n8:0 Total 12288\n7:1 Read 1\nTotal 12289\n",
	})
	h := &cgroup.Mounts{V1: map[string]string{}, Hybrid: filepath.Join(root, "hybrid")}
	for _, c := range []string{"cpu", "cpuacct", "memory", "pids", "hugetlb", "blkio"} {
		h.V1[c] = filepath.Join(root, c)
	}
	r := NewReader(h)
	r.pageSizes = []string{"2MB", "1GB"}
	s, err := r.Sample("/c")
	if err != nil || s.At.IsZero() {
		t.Fatalf("%+v, %v", s, err)
	}
	memory := s.Memory
	s.At, s.Memory = time.Time{}, Memory{}
	want := Sample{
		Usage: 5 * time.Second, User: 3 * time.Second, System: 1500 * time.Millisecond,
		Periods: 10, ThrottledPeriods: 3, Throttled: 7 * time.Second, Shares: 512, Period: 100000, Quota: 20000,
		Cache: 5, Mapped: 4, Kernel: 77, Peak: 2000, HasPeak: true, Failures: 6, OOMKills: 2, OwnFaults: 1, OwnMajor: 2,
		Threads:   3,
		Devices:   []Device{{Major: 8, ReadBytes: 4096, WriteBytes: 8192, Reads: 2, Writes: 3}, {Major: 7, Minor: 1, ReadBytes: 1}},
		HugePages: []HugePages{{Size: "2MB", Usage: 2097152, Peak: 4194304, HasPeak: true}},
		Pressures: Pressures{
			CPU: &Pressure{Some: Stall{Total: 614 * time.Microsecond, Avg10: 1.5}},
			IO:  &Pressure{Some: Stall{Total: 2 * time.Microsecond}, HasFull: true, Full: Stall{Total: time.Microsecond, Avg300: 0.25}},
		},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%+v\nwant\n%+v", s, want)
	}
	if memory.Usage != 1000 || memory.Limit != 4096 || memory.Faults != 11 || memory.Major != 12 || memory.HasSwap {
		t.Errorf("memory: %+v", memory)
	}
	if s, err = r.Sample("/free"); err != nil || s.Quota != 0 || s.HasPeak || s.Devices != nil {
		t.Errorf("without most files: %+v, %v", s, err)
	}
	if d := devices1(h.Group("/old")); len(d) != 1 || d[0] != (Device{Major: 8, Minor: 16, WriteBytes: 9}) {
		t.Errorf("devices of an old kernel: %+v", d)
	}
	if p := r.Pressures("/empty"); p != (Pressures{}) {
		t.Errorf("pressure of a version 2 cgroup that nothing is in: %+v", p)
	}
	if _, err := r.Sample("/gone"); !errdefs.IsNotFound(err) {
		t.Errorf("a cgroup that is gone: %v", err)
	}
}

func TestSampleVersion2(t *testing.T) {
	root := tree(t, map[string]string{
		"c/cpu.stat":            "usage_usec 5000000\nuser_usec 3000000\nsystem_usec 1500000\nnr_periods 10\nnr_throttled 3\nthrottled_usec 7000000\n",
		"c/cpu.weight":          "100\n",
		"c/cpu.max":             "20000 100000\n",
		"c/memory.current":      "1000\n",
		"c/memory.peak":         "2000\n",
		"c/memory.max":          "4096\n",
		"c/memory.low":          "10\n",
		"c/memory.events":       "low 0\nhigh 0\nmax 6\noom 2\noom_kill 2\n",
		"c/memory.stat":         "file 5\nfile_mapped 4\nkernel 77\npgfault 11\npgmajfault 12\n",
		"c/pids.current":        "3\n",
		"c/pids.max":            "100\n",
		"c/hugetlb.2MB.current": "2097152\n",
		"c/io.stat":             "8:0 rbytes=4096 wbytes=8192 rios=2 wios=3 dbytes=0 dios=0\n7:1 \n",
		"c/memory.pressure":     "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n",
		"old/cpu.stat":          "usage_usec 1\n",
		"old/cpu.max":           "max 100000\n",
		"old/memory.current":    "1\n",
		"old/memory.stat":       "slab 40\nkernel_stack 2\n",
	})
	r := NewReader(&cgroup.Mounts{Unified: root})
	r.pageSizes = []string{"2MB"}
	s, err := r.Sample("/c")
	if err != nil {
		t.Fatal(err)
	}
	s.At, s.Memory = time.Time{}, Memory{}
	want := Sample{
		Usage: 5 * time.Second, User: 3 * time.Second, System: 1500 * time.Millisecond,
		Periods: 10, ThrottledPeriods: 3, Throttled: 7 * time.Second, Shares: 2597, Period: 100000, Quota: 20000,
		Cache: 5, Mapped: 4, Kernel: 77, Peak: 2000, HasPeak: true, Reservation: 10, Failures: 6, OOMKills: 2,
		OwnFaults: 11, OwnMajor: 12, Threads: 3, MaxThreads: 100,
		Devices:   []Device{{Major: 8, ReadBytes: 4096, WriteBytes: 8192, Reads: 2, Writes: 3}},
		HugePages: []HugePages{{Size: "2MB", Usage: 2097152}},
		Pressures: Pressures{Memory: &Pressure{Some: Stall{Total: 5 * time.Microsecond}, HasFull: true, Full: Stall{Total: 3 * time.Microsecond}}},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%+v\nwant\n%+v", s, want)
	}
	if s, err = r.Sample("/old"); err != nil || s.HasPeak || s.Kernel != 42 || s.Quota != 0 || s.Period != 100000 {
		t.Errorf("an old kernel: %+v, %v", s, err)
	}
}

func TestPressureText(t *testing.T) {
	for _, text := range []string{"", "some\n", "some avg10=x avg60=0 avg300=0 total=0\n", "some avg10=0 avg60=0 avg300=0 total=1.5\n"} {
		if p := parsePressure(text); p != nil {
			t.Errorf("%q: %+v", text, p)
		}
	}
}

// A file of a cgroup that goes while it is open says ENODEV.
func TestGoneWhileRead(t *testing.T) {
	if err := wrap((&cgroup.Mounts{}).Group("/c"), &os.PathError{Op: "read", Path: "cpu.stat", Err: unix.ENODEV}); !errdefs.IsNotFound(err) {
		t.Error(err)
	}
}
