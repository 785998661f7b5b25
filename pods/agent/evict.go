package agent

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/agent/evictions"
	"github.com/sunaba-project/sunaba/pods/agent/pace"
	"github.com/sunaba-project/sunaba/pods/agent/usage"
	"github.com/sunaba-project/sunaba/pods/pressure"
)

const (
	// lookAround is how often the node and pods with limits of the disk are looked at (EX4, VO5).
	lookAround = 10 * time.Second
	// soonest is the least time between two looks that an alarm of the kernel asks for.
	soonest = time.Second
	// patience is how long a look waits for pods whose files take long to walk through.
	patience = 5 * time.Second
	// untilCleared is how long the end of an evicted pod is waited for before another one is (EX6).
	untilCleared = 30 * time.Second
)

// Eviction is when and how pods end because the node has too little of something.
type Eviction struct {
	// Gauges measure the node. Without any, only the limits of pods are watched.
	Gauges Gauges
	// Thresholds are the least that is to be available, Transition is how long a condition of the
	// node stays after its last sight.
	Thresholds pressure.Thresholds
	Transition time.Duration
	// Reclaim removes what nobody needs from the disk, before pods are evicted for it, and says
	// whether that was anything (EX5). Nil: there is nothing.
	Reclaim func(ctx context.Context) (freed bool, err error)
}

// Gauges measure the node.
type Gauges interface {
	// Read measures what has a threshold. What failed to be measured is left out, and named in the
	// error.
	Read() (pressure.Readings, error)
	// Settle returns when what was removed from the disk counts as free.
	Settle() error
	// Apart says whether images and layers have a file system of their own.
	Apart() bool
	// Alarm calls f when the kernel says that memory is short, until the context ends.
	//
	// # Errors
	//
	// ErrNotImplemented if the kernel does not say that.
	Alarm(ctx context.Context, f func()) error
}

// Conditions are MemoryPressure, DiskPressure and PIDPressure of the node, none before the first
// look. It may be called by any goroutine.
func (a *Agent) Conditions() []corev1.NodeCondition {
	if list := a.l.evictor.shown.Load(); list != nil {
		return *list
	}
	return nil
}

// evictor ends pods that take more of the disk than they may, and others while the node has too
// little of something. It is owned by the loop; what is measured is measured by workers.
type evictor struct {
	*loop
	conditions pressure.Conditions
	shown      atomic.Pointer[[]corev1.NodeCondition]
	// next is when wake is to be called, look when it is looked; zero for never. looking says that
	// a worker does it, round that pods are being ranked.
	next, look, looked time.Time
	looking, round     bool
	// clearing is the evicted pod whose end is waited for, until a time.
	clearing      string
	clearingUntil time.Time
	measuring     map[string]bool // pods whose files a worker walks through
	// history has the last evictions of pods that are being made anew.
	history *evictions.Book
	failing atomic.Bool // the last reading failed, which was logged
}

func newEvictor(l *loop) *evictor {
	e := &evictor{loop: l, measuring: map[string]bool{}}
	e.conditions.Transition = l.o.Eviction.Transition
	var err error
	if e.history, err = evictions.Open(filepath.Join(l.o.Root, "evictions"), l.store.Replace); err != nil {
		l.o.Logger.Error("failed to read evictions of deleted pods, their back-off starts anew", "error", err)
	}
	return e
}

// limited are the limits of a pod that must be watched.
type limited struct {
	of               *corev1.Pod
	volumes, storage bool
}

// limits are those of a pod.
func (p *pod) limits() limited {
	if p.limited.of != p.rec.Pod {
		volumes, storage := pressure.Limited(p.rec.Pod)
		p.limited = limited{p.rec.Pod, volumes, storage}
	}
	return p.limited
}

// active says whether a pod runs and may be evicted.
func (p *pod) active() bool {
	r := p.rec
	return r.Pending == nil && r.Final == nil && !r.Done && r.Deletion == nil && r.Interrupted == nil && p.seen.Live()
}

// start starts the first measurement.
func (l *evictor) start() {
	for _, p := range l.pods {
		if p.rec.Evicted != nil {
			p.rec.Evicted.Shift(l.o.now())
		}
	}
	if l.watchesNode() && l.look.IsZero() {
		l.look = l.pace.Next(l.o.now(), lookAround)
		l.work.Go(l.listen)
	}
	l.arm()
}

// listen has it looked at once when the kernel says that memory is short.
func (l *evictor) listen() {
	err := l.o.Eviction.Gauges.Alarm(l.ctx, func() { l.post(l.alarm) })
	if err != nil && l.ctx.Err() == nil {
		l.o.Logger.Info("memory is looked at every 10 s only", "reason", err)
	}
}

func (l *evictor) alarm() {
	if at := l.looked.Add(soonest); l.look.After(at) {
		l.look = at
		l.arm()
	}
}

// watchesNode says whether there is a threshold.
func (l *evictor) watchesNode() bool {
	return l.o.Eviction.Gauges != nil && l.o.Eviction.Thresholds.Any()
}

// seen notes that a pod has limits to be watched, or that an evicted one has ended.
func (l *evictor) seen(p *pod) {
	if l.look.IsZero() && !l.looking && p.active() && (p.limits().volumes || p.limits().storage) {
		l.look = l.pace.Next(l.o.now(), lookAround)
		l.arm()
	}
	if p.uid() == l.clearing && p.rec.Live.TornDown {
		l.cleared()
	}
}

// cleared has it looked again at once, when an evicted pod takes nothing any more.
func (l *evictor) cleared() {
	l.clearing = ""
	if !l.look.IsZero() {
		l.look = l.o.now()
		l.arm()
	}
}

// arm sets the time of the next wake.
func (l *evictor) arm() {
	l.next = l.look
	now := l.o.now()
	for _, p := range l.pods {
		if e := p.rec.Evicted; l.waits(p) && !l.conditions.Holds(e.Condition) && e.Until.After(now) {
			l.next = pace.Earliest(l.next, e.Until)
		}
	}
}

// wake does what is due.
func (l *evictor) wake(now time.Time) {
	if l.next.IsZero() || l.next.After(now) {
		return
	}
	if !l.look.IsZero() && !l.look.After(now) {
		l.look, l.looked, l.looking = time.Time{}, now, true
		l.lookAround(now)
	}
	l.arm()
	for _, p := range l.pods {
		if l.returns(p) {
			l.plan.sync()
			break
		}
	}
}

// lookAround measures the pods with limits, and then the node.
func (l *evictor) lookAround(now time.Time) {
	done := make(chan struct{}, len(l.pods))
	count := 0
	for uid, p := range l.pods {
		limits := p.limits()
		if !p.active() || l.measuring[uid] || !limits.volumes && !limits.storage {
			continue
		}
		l.measuring[uid] = true
		count++
		s := l.sampleOf(p, limits.storage)
		l.work.Go(func() {
			use, err := usage.Measure(l.ctx, l.o.CRI, l.o.Volumes, s)
			l.post(func() { l.measured(s.Pod, use, err) })
			done <- struct{}{}
		})
	}
	l.work.Go(func() {
		if !l.await(done, count) {
			return
		}
		readings := l.read()
		l.post(func() { l.lookedAround(readings, now) })
	})
}

// await waits for so many workers, for as long as a look has patience, and says whether the agent
// still runs.
func (l *evictor) await(done <-chan struct{}, count int) bool {
	if count == 0 { // even a timer that is stopped wakes the process at its time
		return l.ctx.Err() == nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for ; count > 0; count-- {
		select {
		case <-done:
		case <-timer.C:
			return true
		case <-l.ctx.Done():
			return false
		}
	}
	return true
}

// lookedAround takes in what the node has left, and plans the next look.
func (l *evictor) lookedAround(readings pressure.Readings, began time.Time) {
	l.looking = false
	again := l.watchesNode()
	for _, p := range l.pods {
		again = again || p.active() && (p.limits().volumes || p.limits().storage)
	}
	if again && l.look.IsZero() {
		l.look = l.pace.Next(began, lookAround)
	}
	l.took(readings)
	l.arm()
}

// measured ends a pod that takes more of the disk than it may (VO5, RE13).
func (l *evictor) measured(pod *corev1.Pod, use *pressure.Use, err error) {
	delete(l.measuring, string(pod.UID))
	p := l.pods[string(pod.UID)]
	switch {
	case err != nil && l.ctx.Err() == nil:
		l.o.Logger.Warn("failed to measure disk usage of pod", "pod", pod.UID, "error", err)
	case err != nil || p == nil || !p.active() || pressure.Critical(p.rec.Pod):
	default:
		if message := pressure.OverLimit(p.rec.Pod, *use, l.apart()); message != "" {
			l.evict(p, message, "")
		}
	}
}

// took takes in what the node has left: its conditions, and whether a pod must end.
func (l *evictor) took(readings pressure.Readings) {
	now := l.o.now()
	met := l.o.Eviction.Thresholds.Met(readings)
	changes := l.conditions.See(met, now)
	list := l.conditions.List()
	l.shown.Store(&list)
	for _, reason := range changes {
		l.nodeStatus(reason)
		l.o.Logger.Info("condition of node changed", "condition", reason)
	}
	if len(changes) > 0 {
		l.plan.sync() // what waits may be admitted now
	}
	if len(met) == 0 || !l.listed || !l.wanted || l.round || l.clearing != "" && now.Before(l.clearingUntil) {
		return
	}
	l.clearing = ""
	l.round = true
	l.nodeEvent(corev1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim "+string(met[0].Resource()))
	l.o.Logger.Warn("node is low on a resource", "resource", met[0].Resource(), "available", readings[met[0]].Available)
	samples := map[string]usage.Sample{}
	for uid, p := range l.pods {
		if p.active() {
			samples[uid] = l.sampleOf(p, true)
		}
	}
	l.work.Go(func() { l.reclaim(met, readings, samples) })
}
