package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sunaba-project/sunaba/criserver/overhead"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/criserver/stats"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// newWatch watches the overhead of all ready sandboxes.
func newWatch(o Options, m *meter) *overhead.Watch {
	return overhead.New(overhead.Options{
		Pods: func() []overhead.Pod {
			var pods []overhead.Pod
			for _, rec := range o.Sandboxes.List() {
				if rec.Phase == state.Ready {
					pods = append(pods, m.pricedPod(rec))
				}
			}
			return pods
		},
		Measure: func(ctx context.Context, id string) (int64, time.Duration, error) {
			rec, err := o.Sandboxes.Get(id)
			if err != nil {
				return 0, 0, err
			}
			measured, err := m.overhead(ctx, rec)
			return int64(measured.MemoryBytes), time.Duration(measured.CPUNanos), err
		},
		Every: o.Overhead.Every, All: o.Overhead.All, Patience: o.Overhead.Patience, Logger: o.Logger,
	})
}

// shimCollector gives out the metrics of shims that pods share.
func shimCollector(o Options) prometheus.Collector {
	var handlers []overhead.Handler
	for _, h := range o.Handlers.All() {
		handlers = append(handlers, overhead.Handler{Name: h.Name, Type: string(h.Type), Scope: string(h.ShimScope)})
	}
	return overhead.NewShimCollector(handlers, func(ctx context.Context) []overhead.SharedShim {
		var out []overhead.SharedShim
		for _, r := range o.Sandboxes.ShimReports(ctx) {
			s := overhead.SharedShim{
				Handler: r.Handler, Pods: r.Pods, Memory: map[string]uint64{}, CPU: r.CPU,
				Restarts: max(r.History.Shims-1, 0), Adopted: r.History.Adopted, Lost: r.History.Lost,
			}
			for name, pid := range r.PIDs() {
				if bytes, err := stats.ProcessMemory("/proc", pid, 0, 0); err == nil { // else it has just ended
					s.Memory[name] = bytes
				}
			}
			out = append(out, s)
		}
		return out
	}, func() map[string]int { return ownShims(o) })
}

// ownShims counts the shims of pods that have their own, by handler.
func ownShims(o Options) map[string]int {
	count := map[string]int{}
	for _, rec := range o.Sandboxes.List() {
		if rec.ShimScope == runtimeclass.ScopeNode {
			continue
		}
		if s, err := o.Sandboxes.Sandbox(rec.ID); err == nil && s.Shim() != nil {
			count[rec.HandlerName]++
		}
	}
	return count
}

func (m *meter) pricedPod(rec state.Sandbox) overhead.Pod {
	meta := rec.Config.Value.GetMetadata()
	return overhead.Pod{
		ID: rec.ID, Name: meta.GetName(), Namespace: meta.GetNamespace(), Handler: rec.HandlerName, Class: m.class(rec),
		Created: rec.CreatedAt, Declared: overhead.ToAmounts(rec.Overhead.Value),
	}
}

// class names a sandbox's RuntimeClass, if it can be told.
func (m *meter) class(rec state.Sandbox) string {
	if m.o.Overhead.Class == nil {
		return ""
	}
	return m.o.Overhead.Class(rec.HandlerName, rec.Overhead.Value)
}
