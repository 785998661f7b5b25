package scenario

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
)

// podMetrics asks for the metrics of one pod and indexes them by name; containers are those of its
// containers.
func (p *pod) podMetrics() (own map[string][]*runtime.Metric, containers map[string]map[string][]*runtime.Metric) {
	p.t.Helper()
	answer, err := p.ListPodSandboxMetrics(p.t.Context(), &runtime.ListPodSandboxMetricsRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	index := func(list []*runtime.Metric) map[string][]*runtime.Metric {
		out := map[string][]*runtime.Metric{}
		for _, m := range list {
			out[m.GetName()] = append(out[m.GetName()], m)
		}
		return out
	}
	for _, pm := range answer.GetPodMetrics() {
		if pm.GetPodSandboxId() != p.id {
			continue
		}
		containers = map[string]map[string][]*runtime.Metric{}
		for _, cm := range pm.GetContainerMetrics() {
			containers[cm.GetContainerId()] = index(cm.GetMetrics())
		}
		return index(pm.GetMetrics()), containers
	}
	return nil, nil
}

// rarely are the metrics that only some machines have: huge pages, pressure (version 2), a device
// that counts.
var rarely = []string{
	"container_hugetlb_max_usage_bytes", "container_hugetlb_usage_bytes",
	"container_pressure_cpu_stalled_seconds_total", "container_pressure_cpu_waiting_seconds_total",
	"container_pressure_io_stalled_seconds_total", "container_pressure_io_waiting_seconds_total",
	"container_pressure_memory_stalled_seconds_total", "container_pressure_memory_waiting_seconds_total",
	"container_blkio_device_usage_total", "container_fs_reads_bytes_total", "container_fs_reads_total",
	"container_fs_writes_bytes_total", "container_fs_writes_total",
}

// Every metric of cAdvisor that the machine can have is there for a pod of every handler, with its
// labels, and a container that has ended is left out.
func TestPodMetrics(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	answer, err := m.ListMetricDescriptors(t.Context(), &runtime.ListMetricDescriptorsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string][]string{}
	for _, d := range answer.GetDescriptors() {
		labels[d.GetName()] = d.GetLabelKeys()
	}
	if len(labels) != 56 {
		t.Fatalf("%d descriptors", len(labels))
	}
	for _, handler := range everyHandler {
		t.Run(handler, func(t *testing.T) {
			m := m.in(t)
			p := m.run(handler)
			busy := sh("while :; do :; done")
			ended := sh("exit 0")
			if handler == "wasm" {
				busy, ended = containerConfig(world.Guest, "spin"), containerConfig(world.Guest, "exit", "0")
			}
			busy.Linux.Resources = &runtime.LinuxContainerResources{
				CpuPeriod: 100000, CpuQuota: 90000, CpuShares: 512, MemoryLimitInBytes: 64 << 20,
			}
			c := p.begin(busy)
			gone := p.begin(ended)
			gone.wait()
			var own map[string][]*runtime.Metric
			var containers map[string]map[string][]*runtime.Metric
			node.Within(node.Patience, func() bool { // seconds are whole numbers
				own, containers = p.podMetrics()
				usage := containers[c.id]["container_cpu_usage_seconds_total"]
				return len(usage) > 0 && usage[0].GetValue().GetValue() > 0
			})
			checkMetrics(t, labels, own, containers[c.id])
			if containers[gone.id] != nil || len(containers) != 1 {
				t.Errorf("metrics of %d containers", len(containers))
			}
			one := func(list map[string][]*runtime.Metric, name string) uint64 {
				if len(list[name]) == 0 {
					t.Errorf("no %s", name)
					return 0
				}
				return list[name][0].GetValue().GetValue()
			}
			for name, want := range map[string]uint64{
				"container_spec_cpu_quota": 90000, "container_spec_cpu_period": 100000, "container_spec_cpu_shares": 512,
				"container_spec_memory_limit_bytes": 64 << 20, "container_oom_events_total": 0,
			} {
				if got := one(containers[c.id], name); got != want {
					t.Errorf("%s is %d, want %d", name, got, want)
				}
			}
			now := uint64(time.Now().Unix())
			for _, name := range []string{"container_start_time_seconds", "container_last_seen"} {
				if got := one(containers[c.id], name); got+600 < now || got > now {
					t.Errorf("%s is %d at %d", name, got, now)
				}
			}
			for _, name := range []string{
				"container_cpu_usage_seconds_total", "container_memory_usage_bytes", "container_processes", "container_threads",
				"container_file_descriptors", "container_ulimits_soft", "container_fs_limit_bytes", "container_fs_inodes_total",
				"container_memory_working_set_bytes", "container_memory_max_usage_bytes",
			} {
				if one(containers[c.id], name) == 0 {
					t.Errorf("%s is 0", name)
				}
			}
			if one(own, "container_cpu_usage_seconds_total") < one(containers[c.id], "container_cpu_usage_seconds_total") {
				t.Error("the pod used less than its container")
			}
			c.stop(0)
		})
	}
}

// checkMetrics compares metrics with their descriptors.
func checkMetrics(t *testing.T, labels map[string][]string, lists ...map[string][]*runtime.Metric) {
	t.Helper()
	seen := map[string]bool{}
	for _, list := range lists {
		for name, values := range list {
			seen[name] = true
			for _, v := range values {
				if len(v.GetLabelValues()) != len(labels[name]) {
					t.Errorf("%s: labels %q, values %q", name, labels[name], v.GetLabelValues())
				}
				if v.GetTimestamp() != 0 {
					t.Errorf("%s: a timestamp on what was read just now", name)
				}
			}
		}
	}
	for name := range labels {
		if !seen[name] && !slices.Contains(rarely, name) {
			t.Errorf("no %s", name)
		}
	}
}

// The stream says the same as the list, and neither is spoiled by a pod whose shim or container has
// just died.
func TestPodMetricsOfDyingPods(t *testing.T) {
	m := startOwn(t)
	m.pull(world.Busybox)
	healthy := m.run("runc")
	c := healthy.begin(sh("sleep 1000"))
	for range 3 {
		p := m.run("runc")
		p.begin(sh("sleep 0.2"))
		p.begin(sh("sleep 1000"))
		p.killShim()
		for range 20 {
			own, containers := healthy.podMetrics()
			if len(own) == 0 || containers[c.id] == nil {
				t.Fatal("the healthy pod's metrics are missing")
			}
			stats, err := m.ListPodSandboxStats(t.Context(), &runtime.ListPodSandboxStatsRequest{})
			if err != nil || !slices.ContainsFunc(stats.GetStats(), func(s *runtime.PodSandboxStats) bool { return s.GetAttributes().GetId() == healthy.id }) {
				t.Fatalf("stats of pods: %v, %v", stats, err)
			}
			list, err := m.ListContainerStats(t.Context(), &runtime.ListContainerStatsRequest{})
			if err != nil || !slices.ContainsFunc(list.GetStats(), func(s *runtime.ContainerStats) bool { return s.GetAttributes().GetId() == c.id }) {
				t.Fatalf("stats of containers: %v, %v", list, err)
			}
		}
	}
	stream, err := m.StreamPodSandboxMetrics(t.Context(), &runtime.StreamPodSandboxMetricsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(part.GetPodSandboxMetrics()) == 0 {
			t.Error("an empty message")
		}
		for _, pm := range part.GetPodSandboxMetrics() {
			if pm.GetPodSandboxId() == healthy.id {
				found++
			}
		}
	}
	if found != 1 {
		t.Errorf("the stream has the healthy pod %d times", found)
	}
}

// A container that has ended, or was never started, has no figures in a list; asked for by name it
// has those of its writable layer.
func TestStatsOfStoppedContainers(t *testing.T) {
	m := start(t)
	m.pull(world.Busybox)
	m.pull(world.Guest)
	for _, handler := range []string{"runc", "wasm"} {
		p := m.run(handler)
		program := func() *runtime.ContainerConfig { return sh("exit 0") }
		if handler == "wasm" {
			program = func() *runtime.ContainerConfig { return containerConfig(world.Guest, "exit", "0") }
		}
		ended, created := p.begin(program()), p.create(program())
		ended.wait()
		list, err := m.ListContainerStats(t.Context(), &runtime.ListContainerStatsRequest{Filter: &runtime.ContainerStatsFilter{PodSandboxId: p.id}})
		if err != nil || len(list.GetStats()) != 0 {
			t.Errorf("under %s: %v, %v", handler, list, err)
		}
		for _, c := range []*container{ended, created} {
			one, err := m.ContainerStats(t.Context(), &runtime.ContainerStatsRequest{ContainerId: c.id})
			if err != nil || one.GetStats().GetCpu() != nil || one.GetStats().GetWritableLayer().GetTimestamp() == 0 {
				t.Errorf("under %s: %v, %v", handler, one, err)
			}
		}
		pod, err := m.PodSandboxStats(t.Context(), &runtime.PodSandboxStatsRequest{PodSandboxId: p.id})
		if err != nil || len(pod.GetStats().GetLinux().GetContainers()) != 0 {
			t.Errorf("under %s: %v, %v", handler, pod, err)
		}
		p.stop()
		pod, err = m.PodSandboxStats(t.Context(), &runtime.PodSandboxStatsRequest{PodSandboxId: p.id})
		if err != nil || pod.GetStats().GetAttributes().GetId() != p.id {
			t.Errorf("under %s, stopped: %v, %v", handler, pod, err)
		}
	}
}
