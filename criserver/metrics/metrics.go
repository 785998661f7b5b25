package metrics

import (
	"strconv"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/stats"
	"github.com/sunaba-project/sunaba/host/cgroup/usage"
)

// Table turns readings into metrics. It is safe for concurrent use.
type Table struct {
	kinds   map[string]runtime.MetricType
	devices deviceNames
}

// New returns a table of all metrics.
func New() *Table {
	t := &Table{kinds: map[string]runtime.MetricType{}}
	for _, f := range families() {
		t.kinds[f.name] = f.kind
	}
	return t
}

// Descriptors describe every metric that Pod and Container make.
func (t *Table) Descriptors() []*runtime.MetricDescriptor {
	var out []*runtime.MetricDescriptor
	for _, f := range families() {
		out = append(out, &runtime.MetricDescriptor{Name: f.name, Help: f.help, LabelKeys: append(baseLabels(), f.labels...)})
	}
	return out
}

// Object is what metrics are about. Container and Image are empty for a whole pod.
type Object struct {
	Container, Cgroup, Image, ID, Namespace, Pod string
	Started                                      time.Time
}

// FileSystem is what a container writes to.
type FileSystem struct {
	Device       string
	Used, Limit  uint64 // bytes: of the container, of the whole file system
	Inodes, Free uint64 // of the whole file system
}

// Container makes the metrics of a container.
func (t *Table) Container(o Object, s usage.Sample, tasks stats.Tasks, fs FileSystem) []*runtime.Metric {
	l := t.list(o)
	l.sample(s)
	l.add("container_fs_usage_bytes", fs.Used, fs.Device)
	l.add("container_fs_limit_bytes", fs.Limit, fs.Device)
	l.add("container_fs_inodes_free", fs.Free, fs.Device)
	l.add("container_fs_inodes_total", fs.Inodes, fs.Device)
	l.add("container_processes", tasks.Processes)
	l.add("container_file_descriptors", tasks.Files)
	l.add("container_sockets", tasks.Sockets)
	if tasks.HasMaxFiles {
		l.add("container_ulimits_soft", tasks.MaxFiles, "max_open_files")
	}
	return l.out
}

// Pod makes the metrics of a whole pod; links are empty for one on the node's network.
func (t *Table) Pod(o Object, s usage.Sample, links []stats.Interface) []*runtime.Metric {
	l := t.list(o)
	l.sample(s)
	for _, i := range links {
		l.add("container_network_receive_bytes_total", i.RxBytes, i.Name)
		l.add("container_network_receive_packets_total", i.RxPackets, i.Name)
		l.add("container_network_receive_packets_dropped_total", i.RxDropped, i.Name)
		l.add("container_network_receive_errors_total", i.RxErrors, i.Name)
		l.add("container_network_transmit_bytes_total", i.TxBytes, i.Name)
		l.add("container_network_transmit_packets_total", i.TxPackets, i.Name)
		l.add("container_network_transmit_packets_dropped_total", i.TxDropped, i.Name)
		l.add("container_network_transmit_errors_total", i.TxErrs, i.Name)
	}
	return l.out
}

// list collects the metrics of one object.
type list struct {
	table *Table
	base  []string
	start time.Time
	out   []*runtime.Metric
	room  []figure
}

// figure is a metric with what it points to.
type figure struct {
	metric runtime.Metric
	value  runtime.UInt64Value
}

func (t *Table) list(o Object) *list {
	return &list{
		table: t, base: []string{o.Container, o.Cgroup, o.Image, o.ID, o.Namespace, o.Pod}, start: o.Started,
		out: make([]*runtime.Metric, 0, 64),
	}
}

// add appends a metric; labels are the values of those that its family has beside the base ones.
func (l *list) add(name string, value uint64, labels ...string) {
	values := l.base
	if len(labels) > 0 {
		values = append(l.base[:len(l.base):len(l.base)], labels...)
	}
	if len(l.room) == 0 {
		l.room = make([]figure, 48) // some more than a pod has that used no device
	}
	m, v := &l.room[0].metric, &l.room[0].value
	l.room = l.room[1:]
	m.Name, m.MetricType, m.LabelValues, m.Value, v.Value = name, l.table.kinds[name], values, v, value
	l.out = append(l.out, m)
}

func (l *list) seconds(name string, d time.Duration, labels ...string) {
	l.add(name, uint64(d/time.Second), labels...)
}

// sample adds what pods and containers have in common.
func (l *list) sample(s usage.Sample) {
	l.cpu(s)
	l.memory(s)
	l.pressure("cpu", s.Pressures.CPU)
	l.pressure("memory", s.Pressures.Memory)
	l.pressure("io", s.Pressures.IO)
	for _, d := range s.Devices {
		l.device(d)
	}
	l.add("container_threads", s.Threads)
	l.add("container_threads_max", s.MaxThreads)
	if !l.start.IsZero() {
		l.add("container_start_time_seconds", uint64(l.start.Unix()))
	}
	l.add("container_last_seen", uint64(s.At.Unix()))
}

func (l *list) cpu(s usage.Sample) {
	l.seconds("container_cpu_usage_seconds_total", s.Usage, "total")
	l.seconds("container_cpu_user_seconds_total", s.User)
	l.seconds("container_cpu_system_seconds_total", s.System)
	l.add("container_cpu_cfs_periods_total", s.Periods)
	l.add("container_cpu_cfs_throttled_periods_total", s.ThrottledPeriods)
	l.seconds("container_cpu_cfs_throttled_seconds_total", s.Throttled)
	l.add("container_spec_cpu_shares", s.Shares)
	l.add("container_spec_cpu_period", s.Period)
	if s.Quota > 0 {
		l.add("container_spec_cpu_quota", s.Quota)
	}
}

func (l *list) memory(s usage.Sample) {
	m := s.Memory
	l.add("container_memory_usage_bytes", m.Usage)
	l.add("container_memory_working_set_bytes", m.WorkingSet)
	l.add("container_memory_rss", m.RSS)
	l.add("container_memory_cache", s.Cache)
	l.add("container_memory_mapped_file", s.Mapped)
	l.add("container_memory_kernel_usage", s.Kernel)
	l.add("container_memory_swap", m.Swap)
	if s.HasPeak {
		l.add("container_memory_max_usage_bytes", s.Peak)
	}
	l.add("container_memory_failcnt", s.Failures)
	l.add("container_memory_failures_total", s.OwnFaults, "pgfault", "container")
	l.add("container_memory_failures_total", s.OwnMajor, "pgmajfault", "container")
	l.add("container_memory_failures_total", m.Faults, "pgfault", "hierarchy")
	l.add("container_memory_failures_total", m.Major, "pgmajfault", "hierarchy")
	l.add("container_oom_events_total", s.OOMKills)
	l.add("container_spec_memory_limit_bytes", m.Limit)
	l.add("container_spec_memory_reservation_limit_bytes", s.Reservation)
	l.add("container_spec_memory_swap_limit_bytes", m.SwapFile)
	for _, h := range s.HugePages {
		l.add("container_hugetlb_usage_bytes", h.Usage, h.Size)
		if h.HasPeak {
			l.add("container_hugetlb_max_usage_bytes", h.Peak, h.Size)
		}
	}
}

func (l *list) pressure(of string, p *usage.Pressure) {
	if p == nil {
		return
	}
	l.seconds("container_pressure_"+of+"_waiting_seconds_total", p.Some.Total)
	l.seconds("container_pressure_"+of+"_stalled_seconds_total", p.Full.Total)
}

func (l *list) device(d usage.Device) {
	name := l.table.devices.name(d.Major, d.Minor)
	major, minor := strconv.FormatUint(d.Major, 10), strconv.FormatUint(d.Minor, 10)
	l.add("container_blkio_device_usage_total", d.ReadBytes, name, major, minor, "Read")
	l.add("container_blkio_device_usage_total", d.WriteBytes, name, major, minor, "Write")
	l.add("container_fs_reads_bytes_total", d.ReadBytes, name)
	l.add("container_fs_reads_total", d.Reads, name)
	l.add("container_fs_writes_bytes_total", d.WriteBytes, name)
	l.add("container_fs_writes_total", d.Writes, name)
}
