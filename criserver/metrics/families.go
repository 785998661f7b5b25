// Package metrics turns readings of package stats into the metrics that a kubelet serves below
// /metrics/cadvisor, with cAdvisor's names, labels and units, so that dashboards made for other
// runtimes show these pods too. It is pure.
//
// Every metric has the labels container, id (the cgroup), image, name (the CRI id), namespace and
// pod, as a kubelet gives them to cAdvisor's metrics; those of a whole pod have an empty container
// and image. The table of families has the others. The CRI has whole numbers only: seconds are
// rounded down. A timestamp of 0 says, by the CRI, that a metric was read for this very answer.
package metrics

import (
	"slices"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// family is a metric's name, meaning, kind and the labels that it has beside those of all.
type family struct {
	name, help string
	kind       runtime.MetricType
	labels     []string
}

const (
	counter = runtime.MetricType_COUNTER
	gauge   = runtime.MetricType_GAUGE
)

// baseLabels are those of every metric.
func baseLabels() []string { return []string{"container", "id", "image", "name", "namespace", "pod"} }

func cpuFamilies() []family {
	return []family{
		{"container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", counter, []string{"cpu"}},
		{"container_cpu_user_seconds_total", "Cumulative user cpu time consumed in seconds.", counter, nil},
		{"container_cpu_system_seconds_total", "Cumulative system cpu time consumed in seconds.", counter, nil},
		{"container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals.", counter, nil},
		{"container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals.", counter, nil},
		{"container_cpu_cfs_throttled_seconds_total", "Total time duration the container has been throttled.", counter, nil},
		{"container_spec_cpu_shares", "CPU share of the container.", gauge, nil},
		{"container_spec_cpu_period", "CPU period of the container in microseconds.", gauge, nil},
		{"container_spec_cpu_quota", "CPU quota of the container in microseconds per period; absent without one.", gauge, nil},
	}
}

func memoryFamilies() []family {
	return []family{
		{"container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed.", gauge, nil},
		{"container_memory_working_set_bytes", "Current working set in bytes.", gauge, nil},
		{"container_memory_rss", "Size of RSS (anonymous memory) in bytes.", gauge, nil},
		{"container_memory_cache", "Number of bytes of page cache memory.", gauge, nil},
		{"container_memory_mapped_file", "Size of memory mapped files in bytes.", gauge, nil},
		{"container_memory_kernel_usage", "Size of kernel memory allocated in bytes.", gauge, nil},
		{"container_memory_swap", "Container swap usage in bytes.", gauge, nil},
		{"container_memory_max_usage_bytes", "Maximum memory usage recorded in bytes.", gauge, nil},
		{"container_memory_failcnt", "Number of memory usage hits limits.", counter, nil},
		{"container_memory_failures_total", "Cumulative count of memory allocation failures (page faults).", counter, []string{"failure_type", "scope"}},
		{"container_oom_events_total", "Count of out of memory kills observed for the container.", counter, nil},
		{"container_spec_memory_limit_bytes", "Memory limit for the container in bytes, 0 without one.", gauge, nil},
		{"container_spec_memory_reservation_limit_bytes", "Memory reservation limit for the container in bytes, 0 without one.", gauge, nil},
		{"container_spec_memory_swap_limit_bytes", "Memory swap limit for the container in bytes, 0 without one.", gauge, nil},
		{"container_hugetlb_usage_bytes", "Current hugepage usage in bytes.", gauge, []string{"pagesize"}},
		{"container_hugetlb_max_usage_bytes", "Maximum hugepage usages recorded in bytes.", gauge, []string{"pagesize"}},
	}
}

func pressureFamilies() []family {
	return []family{
		{"container_pressure_cpu_waiting_seconds_total", "Total time duration tasks in the container have waited due to CPU congestion.", counter, nil},
		{"container_pressure_cpu_stalled_seconds_total", "Total time duration no tasks in the container could make progress due to CPU congestion.", counter, nil},
		{"container_pressure_memory_waiting_seconds_total", "Total time duration tasks in the container have waited due to memory congestion.", counter, nil},
		{"container_pressure_memory_stalled_seconds_total", "Total time duration no tasks in the container could make progress due to memory congestion.", counter, nil},
		{"container_pressure_io_waiting_seconds_total", "Total time duration tasks in the container have waited due to IO congestion.", counter, nil},
		{"container_pressure_io_stalled_seconds_total", "Total time duration no tasks in the container could make progress due to IO congestion.", counter, nil},
	}
}

func diskFamilies() []family {
	device := []string{"device"}
	return []family{
		{"container_blkio_device_usage_total", "Blkio device bytes usage.", counter, []string{"device", "major", "minor", "operation"}},
		{"container_fs_reads_bytes_total", "Cumulative count of bytes read.", counter, device},
		{"container_fs_reads_total", "Cumulative count of reads completed.", counter, device},
		{"container_fs_writes_bytes_total", "Cumulative count of bytes written.", counter, device},
		{"container_fs_writes_total", "Cumulative count of writes completed.", counter, device},
		{"container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", gauge, device},
		{"container_fs_limit_bytes", "Number of bytes that can be consumed by the container on this filesystem.", gauge, device},
		{"container_fs_inodes_free", "Number of available inodes.", gauge, device},
		{"container_fs_inodes_total", "Number of inodes.", gauge, device},
	}
}

func networkFamilies() []family {
	link := []string{"interface"}
	return []family{
		{"container_network_receive_bytes_total", "Cumulative count of bytes received.", counter, link},
		{"container_network_receive_packets_total", "Cumulative count of packets received.", counter, link},
		{"container_network_receive_packets_dropped_total", "Cumulative count of packets dropped while receiving.", counter, link},
		{"container_network_receive_errors_total", "Cumulative count of errors encountered while receiving.", counter, link},
		{"container_network_transmit_bytes_total", "Cumulative count of bytes transmitted.", counter, link},
		{"container_network_transmit_packets_total", "Cumulative count of packets transmitted.", counter, link},
		{"container_network_transmit_packets_dropped_total", "Cumulative count of packets dropped while transmitting.", counter, link},
		{"container_network_transmit_errors_total", "Cumulative count of errors encountered while transmitting.", counter, link},
	}
}

func processFamilies() []family {
	return []family{
		{"container_processes", "Number of processes running inside the container.", gauge, nil},
		{"container_threads", "Number of threads running inside the container.", gauge, nil},
		{"container_threads_max", "Maximum number of threads allowed inside the container, 0 without a limit.", gauge, nil},
		{"container_file_descriptors", "Number of open file descriptors for the container.", gauge, nil},
		{"container_sockets", "Number of open sockets for the container.", gauge, nil},
		{"container_ulimits_soft", "Soft ulimit values of the first process of the container.", gauge, []string{"ulimit"}},
		{"container_start_time_seconds", "Start time of the container since unix epoch in seconds.", gauge, nil},
		{"container_last_seen", "Last time the container was seen, since unix epoch in seconds.", gauge, nil},
	}
}

// families are all metrics there are.
func families() []family {
	return slices.Concat(cpuFamilies(), memoryFamilies(), pressureFamilies(), diskFamilies(), networkFamilies(), processFamilies())
}
