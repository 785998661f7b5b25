package metrics

import (
	"slices"
	"strings"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/stats"
	"github.com/sunaba-project/sunaba/host/cgroup/usage"
)

// expected are the names that a kubelet serves from cAdvisor (Kubernetes 1.37), which critest asks
// a runtime for.
const expected = `
container_blkio_device_usage_total container_cpu_cfs_periods_total container_cpu_cfs_throttled_periods_total
container_cpu_cfs_throttled_seconds_total container_cpu_system_seconds_total container_cpu_usage_seconds_total
container_cpu_user_seconds_total container_file_descriptors container_fs_inodes_free container_fs_inodes_total
container_fs_limit_bytes container_fs_reads_bytes_total container_fs_reads_total container_fs_usage_bytes
container_fs_writes_bytes_total container_fs_writes_total container_hugetlb_max_usage_bytes
container_hugetlb_usage_bytes container_last_seen container_memory_cache container_memory_failcnt
container_memory_failures_total container_memory_kernel_usage container_memory_mapped_file
container_memory_max_usage_bytes container_memory_rss container_memory_swap container_memory_usage_bytes
container_memory_working_set_bytes container_network_receive_bytes_total container_network_receive_errors_total
container_network_receive_packets_dropped_total container_network_receive_packets_total
container_network_transmit_bytes_total container_network_transmit_errors_total
container_network_transmit_packets_dropped_total container_network_transmit_packets_total container_oom_events_total
container_pressure_cpu_stalled_seconds_total container_pressure_cpu_waiting_seconds_total
container_pressure_io_stalled_seconds_total container_pressure_io_waiting_seconds_total
container_pressure_memory_stalled_seconds_total container_pressure_memory_waiting_seconds_total
container_processes container_sockets container_spec_cpu_period container_spec_cpu_quota container_spec_cpu_shares
container_spec_memory_limit_bytes container_spec_memory_reservation_limit_bytes
container_spec_memory_swap_limit_bytes container_start_time_seconds container_threads container_threads_max
container_ulimits_soft`

func TestDescriptors(t *testing.T) {
	want := strings.Fields(expected)
	if len(want) != 56 {
		t.Fatalf("%d names are expected", len(want))
	}
	var got []string
	for _, d := range New().Descriptors() {
		got = append(got, d.GetName())
		if d.GetHelp() == "" || len(d.GetLabelKeys()) < 6 {
			t.Errorf("%s: help %q, labels %q", d.GetName(), d.GetHelp(), d.GetLabelKeys())
		}
		keys := slices.Clone(d.GetLabelKeys())
		if slices.Sort(keys); len(slices.Compact(keys)) != len(d.GetLabelKeys()) {
			t.Errorf("%s: a label twice: %q", d.GetName(), d.GetLabelKeys())
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("names:\n%q\nwant\n%q", got, want)
	}
}

// full is a sample in which everything is there.
func full() usage.Sample {
	p := &usage.Pressure{Some: usage.Stall{Total: 2500 * time.Millisecond}, Full: usage.Stall{Total: time.Second}}
	return usage.Sample{
		At: time.Unix(1000, 0), Usage: 3900 * time.Millisecond, User: 2 * time.Second, System: time.Second,
		Quota: 20000, Period: 100000, Shares: 1024,
		Memory: usage.Memory{Usage: 100, WorkingSet: 90, Limit: 1000, SwapFile: 1000, Faults: 7, Major: 1}, Peak: 200, HasPeak: true,
		Devices:   []usage.Device{{Major: 7, Minor: 4242, ReadBytes: 4096, Reads: 1}},
		HugePages: []usage.HugePages{{Size: "2MB", Usage: 2 << 20, Peak: 4 << 20, HasPeak: true}},
		Pressures: usage.Pressures{CPU: p, Memory: p, IO: p},
	}
}

// Every metric is described, has a value for each of its labels, and every one that is described is
// made.
func TestMetricsMatchTheirDescriptors(t *testing.T) {
	table := New()
	object := Object{Container: "c", Cgroup: "/pod/c", Image: "image:1", ID: "id", Namespace: "ns", Pod: "p", Started: time.Unix(900, 0)}
	all := table.Container(object, full(), stats.Tasks{Processes: 1, HasMaxFiles: true, MaxFiles: 1024}, FileSystem{Device: "/dev/x"})
	all = append(all, table.Pod(Object{ID: "pod"}, full(), []stats.Interface{{Name: "eth0", RxBytes: 5}})...)
	made := map[string]bool{}
	seen := map[string]bool{}
	for _, m := range all {
		made[m.GetName()] = true
		key := m.GetName() + strings.Join(m.GetLabelValues(), "\x00")
		if seen[key] {
			t.Errorf("%s twice with the labels %q", m.GetName(), m.GetLabelValues())
		}
		seen[key] = true
	}
	for _, d := range table.Descriptors() {
		if !made[d.GetName()] {
			t.Errorf("nothing makes %s", d.GetName())
		}
		delete(made, d.GetName())
		for _, m := range all {
			if m.GetName() != d.GetName() {
				continue
			}
			if len(m.GetLabelValues()) != len(d.GetLabelKeys()) {
				t.Errorf("%s: labels %q, values %q", d.GetName(), d.GetLabelKeys(), m.GetLabelValues())
			}
			if d.GetName() == "container_fs_inodes_total" {
				continue // a number of them, no count of events
			}
			if want := strings.HasSuffix(d.GetName(), "_total") || strings.HasSuffix(d.GetName(), "_failcnt"); want != (m.GetMetricType() == runtime.MetricType_COUNTER) {
				t.Errorf("%s is a %v", d.GetName(), m.GetMetricType())
			}
		}
	}
	if len(made) != 0 {
		t.Errorf("not described: %v", made)
	}
}

func TestValues(t *testing.T) {
	table := New()
	value := func(name string, labels ...string) uint64 {
		t.Helper()
		for _, m := range table.Container(Object{ID: "id"}, full(), stats.Tasks{}, FileSystem{Used: 12}) {
			if m.GetName() == name && slices.Equal(m.GetLabelValues()[6:], labels) {
				return m.GetValue().GetValue()
			}
		}
		t.Errorf("no %s %q", name, labels)
		return 0
	}
	for _, c := range []struct {
		name   string
		labels []string
		want   uint64
	}{
		{"container_cpu_usage_seconds_total", []string{"total"}, 3},
		{"container_pressure_io_waiting_seconds_total", nil, 2},
		{"container_pressure_io_stalled_seconds_total", nil, 1},
		{"container_spec_cpu_quota", nil, 20000},
		{"container_memory_failures_total", []string{"pgmajfault", "hierarchy"}, 1},
		{"container_memory_max_usage_bytes", nil, 200},
		{"container_hugetlb_max_usage_bytes", []string{"2MB"}, 4 << 20},
		{"container_blkio_device_usage_total", []string{"7:4242", "7", "4242", "Read"}, 4096},
		{"container_fs_usage_bytes", []string{""}, 12},
		{"container_last_seen", nil, 1000},
	} {
		if got := value(c.name, c.labels...); got != c.want {
			t.Errorf("%s %q is %d, want %d", c.name, c.labels, got, c.want)
		}
	}
	bare := table.Container(Object{ID: "id"}, usage.Sample{}, stats.Tasks{}, FileSystem{})
	for _, m := range bare {
		for _, absent := range []string{"container_spec_cpu_quota", "container_pressure_cpu_waiting_seconds_total", "container_start_time_seconds", "container_ulimits_soft"} {
			if m.GetName() == absent {
				t.Errorf("%s without a value", absent)
			}
		}
	}
}
