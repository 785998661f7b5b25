package overhead

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// Pod is a pod to measure.
type Pod struct {
	ID, Name, Namespace, Handler string
	Class                        string // its RuntimeClass, "" where it is not known
	Created                      time.Time
	Declared                     Amounts
}

// Options of a Watch. All but Exceeded are needed.
type Options struct {
	// Pods are the pods that run now.
	Pods func() []Pod
	// Measure returns what a pod costs now. ErrNotFound for one that was just removed.
	Measure func(ctx context.Context, id string) (memoryBytes int64, cpu time.Duration, err error)
	// Every is the time between two samples of a pod.
	Every time.Duration
	// All says that somebody collects the samples of all pods. Without it only pods that declare
	// something are sampled: measuring one takes about a millisecond of processor time.
	All bool
	// Patience is how long a pod may exceed what it declares before it is warned of.
	Patience time.Duration
	Logger   *slog.Logger
}

// Report is a pod with its newest sample.
type Report struct {
	Pod     Pod
	Sample  Sample
	Verdict Verdict
	Since   time.Time // of the verdict
}

// Watch samples pods.
type Watch struct {
	o         Options
	histogram *histogram

	mu   sync.Mutex
	pods map[string]*watched
}

type watched struct {
	Report
	warned bool
}

// New returns a Watch that has not sampled yet.
func New(o Options) *Watch {
	return &Watch{o: o, histogram: newHistogram(), pods: make(map[string]*watched)}
}

// Run samples until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	ticks := time.NewTicker(w.o.Every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			w.Sample(ctx, now)
		}
	}
}

// Sample measures every pod that is watched once, one after another so that it costs little at any
// time.
func (w *Watch) Sample(ctx context.Context, now time.Time) {
	pods := w.o.Pods()
	seen := make(map[string]bool, len(pods))
	for _, p := range pods {
		seen[p.ID] = true
		if !w.watches(p) {
			continue
		}
		memory, cpu, err := w.o.Measure(ctx, p.ID)
		switch {
		case ctx.Err() != nil:
			return
		case errdefs.IsNotFound(err):
		case err != nil:
			w.o.Logger.Debug("failed to measure overhead", "sandbox", p.ID, "error", err)
		default:
			w.take(p, Sample{At: now, MemoryBytes: memory, CPU: cpu})
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.pods, func(id string, _ *watched) bool { return !seen[id] })
}

// watches says whether Run samples a pod.
func (w *Watch) watches(p Pod) bool { return w.o.All || p.Declared != Amounts{} }

// shortest is the least time between two samples that a rate is computed of.
const shortest = time.Second

// Asked returns the newest report of a pod that was measured because somebody asked. If Run does
// not sample the pod, this sample is taken for it.
func (w *Watch) Asked(p Pod, s Sample) Report {
	known, ok := w.Report(p.ID)
	switch {
	case !ok && w.watches(p): // its first sample is still to come
		return Report{Pod: p, Sample: s, Verdict: Judge(p.Declared, s), Since: s.At}
	case w.watches(p), ok && s.At.Sub(known.Sample.At) < shortest:
		return known
	}
	w.take(p, s)
	known, _ = w.Report(p.ID)
	return known
}

// take keeps a sample, and warns once of a pod that has cost too much for too long.
func (w *Watch) take(p Pod, s Sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.pods[p.ID]
	if !ok {
		known = &watched{}
		w.pods[p.ID] = known
	} else if passed := s.At.Sub(known.Sample.At); passed > 0 && s.CPU >= known.Sample.CPU {
		s.CPUMillis = int64((s.CPU-known.Sample.CPU)*1000+passed/2) / int64(passed)
	}
	known.Pod, known.Sample = p, s
	if v := Judge(p.Declared, s); v != known.Verdict {
		known.Verdict, known.Since, known.warned = v, s.At, false
	}
	w.histogram.observe(p.Handler, float64(s.MemoryBytes))
	if known.Verdict == Over && !known.warned && s.At.Sub(known.Since) >= w.o.Patience {
		known.warned = true
		w.o.Logger.Warn("pod costs more than its RuntimeClass declares as overhead",
			"sandbox", p.ID, "pod", p.Namespace+"/"+p.Name, "handler", p.Handler, "class", p.Class, "for", s.At.Sub(known.Since),
			"declared_bytes", p.Declared.MemoryBytes, "measured_bytes", s.MemoryBytes,
			"declared_cpu_millis", p.Declared.CPUMillis, "measured_cpu_millis", s.CPUMillis)
	}
}

// Report returns the newest report of a pod; false before its first sample.
func (w *Watch) Report(id string) (Report, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.pods[id]
	if !ok {
		return Report{}, false
	}
	return known.Report, true
}

// Reports returns the newest report of every pod, by namespace and name.
func (w *Watch) Reports() []Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]Report, 0, len(w.pods))
	for _, known := range w.pods {
		out = append(out, known.Report)
	}
	slices.SortFunc(out, func(a, b Report) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.ID, b.Pod.ID))
	})
	return out
}
