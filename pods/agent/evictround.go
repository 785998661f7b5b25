package agent

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/agent/usage"
	"github.com/sunaba-project/sunaba/pods/agent/worker"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/pressure"
)

// sampleOf makes one of all that a pod takes, or of its limited volumes only.
func (l *evictor) sampleOf(p *pod, all bool) usage.Sample {
	s := usage.Sample{Pod: p.rec.Pod, Logs: map[string]string{}, Volumes: pressure.HasSizeLimit}
	if !all {
		return s
	}
	s.Volumes = func(*corev1.Volume) bool { return true }
	if newest := p.seen.Newest(); newest != nil {
		s.Sandbox = newest.ID
	}
	for _, c := range p.seen.Containers {
		if c.State == cycle.StateRunning && worker.Below(l.o.Logs, c.LogPath) {
			s.Logs[c.Name] = filepath.Dir(c.LogPath)
		}
	}
	return s
}

// read measures the node, in a worker.
func (l *evictor) read() pressure.Readings {
	if !l.watchesNode() {
		return nil
	}
	readings, err := l.o.Eviction.Gauges.Read()
	switch failing := err != nil; {
	case failing && !l.failing.Swap(true):
		l.o.Logger.Error("failed to measure what the node has left", "error", err)
	case !failing:
		l.failing.Store(false)
	}
	return readings
}

// apart says whether images and layers have a file system of their own.
func (l *evictor) apart() bool { return l.o.Eviction.Gauges != nil && l.o.Eviction.Gauges.Apart() }

// reclaim makes room without pods, and ranks them if that is not enough, in a worker (EX5).
func (l *evictor) reclaim(met []pressure.Signal, readings pressure.Readings, samples map[string]usage.Sample) {
	if met[0].Disk() {
		if f := l.o.Eviction.Reclaim; f != nil {
			freed, err := f(l.ctx)
			if err != nil && l.ctx.Err() == nil {
				l.o.Logger.Error("failed to remove unused images and containers", "error", err)
			}
			l.o.Logger.Info("unused images and containers removed", "freed", freed)
		}
		if err := l.o.Eviction.Gauges.Settle(); err != nil {
			l.o.Logger.Warn("failed to write out file systems", "error", err)
		}
		readings = l.read()
		met = l.o.Eviction.Thresholds.Met(readings)
	}
	var uses sync.Map // *pressure.Use by UID
	if len(met) > 0 {
		ctx, stop := context.WithTimeout(l.ctx, patience)
		defer stop()
		var group sync.WaitGroup
		for uid, s := range samples {
			group.Go(func() {
				if use, err := usage.Measure(ctx, l.o.CRI, l.o.Volumes, s); err == nil {
					uses.Store(uid, use)
				} else if l.ctx.Err() == nil {
					l.o.Logger.Warn("failed to measure pod", "pod", uid, "error", err)
				}
			})
		}
		group.Wait()
	}
	l.post(func() {
		l.round = false
		if len(met) > 0 {
			l.choose(met[0], readings, &uses)
		}
	})
}

// choose evicts one pod (EX6).
func (l *evictor) choose(s pressure.Signal, readings pressure.Readings, uses *sync.Map) {
	var candidates []pressure.Candidate
	for uid, p := range l.pods {
		if p.active() {
			c := pressure.Candidate{Pod: p.rec.Pod}
			if use, known := uses.Load(uid); known {
				c.Use = use.(*pressure.Use)
			}
			candidates = append(candidates, c)
		}
	}
	_, logsApart := readings[pressure.LogFS]
	ranked := pressure.Rank(s, candidates, l.apart(), logsApart)
	if len(ranked) == 0 {
		l.o.Logger.Warn("no pod can be evicted", "resource", s.Resource())
		return
	}
	l.evict(l.pods[string(ranked[0].Pod.UID)], pressure.Message(s, l.o.Eviction.Thresholds, readings, ranked[0]), s.Condition())
}

// evict ends a pod for a condition of the node, "" for a limit of its own (EX7).
func (l *evictor) evict(p *pod, message string, condition corev1.NodeConditionType) {
	now := l.o.now()
	var disruption *cycle.Reason
	if condition != "" {
		disruption = &cycle.Reason{Reason: corev1.PodReasonTerminationByKubelet, Message: message}
	}
	p.rec.Evicted = pressure.Evict(p.rec.Evicted, condition, l.conditions.Transition, now)
	p.rec.Purge, p.must = true, true
	p.rec.End(cycle.Final{Phase: corev1.PodFailed, Reason: pressure.Reason, Message: message}, pressure.Grace, disruption, now)
	l.event(p.rec.Pod, "", corev1.EventTypeWarning, pressure.Reason, message)
	l.o.Logger.Warn("pod evicted", "pod", p.uid(), "namespace", p.rec.Pod.Namespace, "name", p.rec.Pod.Name, "message", message)
	l.clearing, l.clearingUntil = p.uid(), now.Add(untilCleared)
	l.arm()
	l.steps.step(p)
}

// waits says whether a pod was evicted and is to be made anew (EX8).
func (l *evictor) waits(p *pod) bool {
	r := p.rec
	return r.Evicted != nil && r.Final != nil && r.Final.Reason == pressure.Reason && r.Deletion == nil
}

// returns says whether an evicted pod may be made anew now.
func (l *evictor) returns(p *pod) bool {
	return l.waits(p) && p.rec.Evicted.Over(&l.conditions, l.o.now())
}

// back is when an evicted pod is made anew at the earliest, zero for one that is not.
func (l *evictor) back(p *pod) time.Time {
	if !l.waits(p) {
		return time.Time{}
	}
	return p.rec.Evicted.Until
}

// removed notes that nothing is left of a pod.
func (l *evictor) removed(p *pod) {
	if p.uid() == l.clearing {
		l.cleared()
	}
}
