package overhead

import (
	"github.com/prometheus/client_golang/prometheus"
)

// The labels of a pod's metrics.
var podLabels = []string{"namespace", "pod", "sandbox", "handler", "class"}

// histogram counts samples by handler.
type histogram struct{ *prometheus.HistogramVec }

func newHistogram() *histogram {
	const mib = 1 << 20
	return &histogram{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sunaba_pod_overhead_bytes",
		Help: "Memory that pods cost beyond their containers' own work, one observation for each pod and sample.",
		Buckets: []float64{1 * mib, 2 * mib, 3 * mib, 4 * mib, 6 * mib, 8 * mib, 12 * mib, 16 * mib, 24 * mib, 32 * mib, 48 * mib,
			64 * mib, 96 * mib, 128 * mib, 256 * mib},
	}, []string{"handler"})}
}

func (h *histogram) observe(handler string, bytes float64) { h.WithLabelValues(handler).Observe(bytes) }

// collector gives the newest samples to Prometheus.
type collector struct {
	watch                                                        *Watch
	declaredBytes, measuredBytes, declaredCPU, measuredCPU, over *prometheus.Desc
}

// Collector returns the metrics of all pods: declared and measured memory, declared and measured
// CPU time, whether a pod is over what it declares, and the distribution of the measured memory by
// handler. Declared CPU time is what the pod may have used since it was created, so that the two
// counters' rates compare.
func (w *Watch) Collector() prometheus.Collector {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("sunaba_pod_overhead_"+name, help, podLabels, nil)
	}
	return &collector{
		watch:         w,
		declaredBytes: describe("declared_bytes", "Memory that the pod's RuntimeClass declares as overhead."),
		measuredBytes: describe("measured_bytes", "Memory that the pod costs beyond its containers' own work: proportional set size."),
		declaredCPU:   describe("declared_cpu_seconds_total", "CPU time that the declared overhead allows since the pod was created."),
		measuredCPU:   describe("measured_cpu_seconds_total", "CPU time that the pod has cost beyond its containers' own work."),
		over:          describe("exceeded", "1 if the pod costs more than it declares, else 0."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.declaredBytes, c.measuredBytes, c.declaredCPU, c.measuredCPU, c.over} {
		out <- d
	}
	c.watch.histogram.Describe(out)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, r := range c.watch.Reports() {
		labels := []string{r.Pod.Namespace, r.Pod.Name, r.Pod.ID, r.Pod.Handler, r.Pod.Class}
		value := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
			out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
		}
		value(c.measuredBytes, prometheus.GaugeValue, float64(r.Sample.MemoryBytes))
		value(c.measuredCPU, prometheus.CounterValue, r.Sample.CPU.Seconds())
		if r.Verdict == Undeclared {
			continue
		}
		age := max(r.Sample.At.Sub(r.Pod.Created).Seconds(), 0)
		value(c.declaredBytes, prometheus.GaugeValue, float64(r.Pod.Declared.MemoryBytes))
		value(c.declaredCPU, prometheus.CounterValue, age*float64(r.Pod.Declared.CPUMillis)/1000)
		over := 0.0
		if r.Verdict == Over {
			over = 1
		}
		value(c.over, prometheus.GaugeValue, over)
	}
	c.watch.histogram.Collect(out)
}
