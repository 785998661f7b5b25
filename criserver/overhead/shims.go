package overhead

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Handler is a runtime handler that pods can be made with.
type Handler struct{ Name, Type, Scope string }

// SharedShim is a shim that pods share, with its supervisor.
type SharedShim struct {
	Handler string
	Pods    int
	// Memory is the proportional set size in bytes of each process, "shim" and "supervisor".
	Memory map[string]uint64
	CPU    time.Duration // of both, since the supervisor was started
	// Restarts are the successors of the supervisor's first shim; Adopted and Lost the containers
	// that these took over, and those that they could not.
	Restarts, Adopted, Lost int
}

// shimCollector exports metrics of the shared shims.
type shimCollector struct {
	handlers []Handler
	shims    func(context.Context) []SharedShim
	own      func() map[string]int

	handler, count, pods, memory, cpu, restarts, adopted, lost *prometheus.Desc
}

// NewShimCollector returns the metrics of handlers and of the shims that their pods share: that of
// which each pod is charged its part. Counters restart with the supervisor. own counts the shims of
// pods that do not share, by handler.
func NewShimCollector(handlers []Handler, shims func(context.Context) []SharedShim, own func() map[string]int) prometheus.Collector {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sunaba_"+name, help, append([]string{"handler"}, labels...), nil)
	}
	return &shimCollector{
		handlers: handlers, shims: shims, own: own,
		handler:  describe("handler_info", "1 for each runtime handler, with its type and whether its new pods share a shim (node) or not (pod).", "type", "shim_scope"),
		count:    describe("shims", "Shims that run: those of pods that have their own (pod), and the one that the handler's pods share (node).", "shim_scope"),
		pods:     describe("shared_shim_pods", "Pods that share the handler's shim."),
		memory:   describe("shared_shim_memory_bytes", "Memory of the shared shim and of its supervisor: proportional set size, divided among the pods in their overhead.", "process"),
		cpu:      describe("shared_shim_cpu_seconds_total", "CPU time of the shared shim and its supervisor, divided among the pods in their overhead."),
		restarts: describe("shared_shim_restarts_total", "Shared shims that have died and that the supervisor has replaced."),
		adopted:  describe("shared_shim_adopted_containers_total", "Containers that shims took over from the ones that died before them."),
		lost:     describe("shared_shim_lost_containers_total", "Containers that shims failed to adopt, and that have ended."),
	}
}

// Describe implements prometheus.Collector.
func (c *shimCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.handler, c.count, c.pods, c.memory, c.cpu, c.restarts, c.adopted, c.lost} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *shimCollector) Collect(out chan<- prometheus.Metric) {
	put := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	for _, h := range c.handlers {
		put(c.handler, prometheus.GaugeValue, 1, h.Name, h.Type, h.Scope)
	}
	for handler, n := range c.own() {
		put(c.count, prometheus.GaugeValue, float64(n), handler, string(runtimeclass.ScopePod))
	}
	for _, s := range c.shims(context.Background()) {
		put(c.count, prometheus.GaugeValue, 1, s.Handler, string(runtimeclass.ScopeNode))
		put(c.pods, prometheus.GaugeValue, float64(s.Pods), s.Handler)
		for process, bytes := range s.Memory {
			put(c.memory, prometheus.GaugeValue, float64(bytes), s.Handler, process)
		}
		put(c.cpu, prometheus.CounterValue, s.CPU.Seconds(), s.Handler)
		put(c.restarts, prometheus.CounterValue, float64(s.Restarts), s.Handler)
		put(c.adopted, prometheus.CounterValue, float64(s.Adopted), s.Handler)
		put(c.lost, prometheus.CounterValue, float64(s.Lost), s.Handler)
	}
}
