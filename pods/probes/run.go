package probes

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/queue"
)

const (
	// atOnce is how many probes run at once, atOncePod how many of one pod. A pod of which none
	// runs may always run one, so that slow probes of some pods hold up no other pod's.
	atOnce    = 64
	atOncePod = 8
	// tries is how often a probe is tried that fails to run.
	tries = 3
)

// probe is one probe of one container.
type probe struct {
	pod       *pod
	container *container
	kind      Kind
	spec      *corev1.Probe
	check     check

	queue.Entry

	on        bool // it is to run
	executing bool // also while a run ends that was given up
	onHold    bool // it failed for good: it rests until there is a new container
	run       *run // nil while none runs that counts
	last      time.Time
	moved     bool
	tally     tally
}

// run is one execution of a probe.
type run struct {
	start  time.Time
	cancel context.CancelFunc
}

// start makes a probe run from now on, if it does not.
func (p *Prober) start(b *probe, now time.Time) {
	if b.on {
		return
	}
	b.on = true
	birth := p.birth
	if b.container.results[Startup] == cycle.ProbeSuccess {
		birth = b.container.started // it started up before our eyes: there is nothing to spread
	}
	switch {
	case b.onHold:
	case b.last.IsZero():
		p.schedule.waiting.Set(b, first(now, birth, b.container.started, b.spec, p.random()))
	default:
		p.schedule.waiting.Set(b, following(b.last, now, b.spec))
	}
}

// end makes a probe run no more.
func (p *Prober) end(b *probe) {
	if b == nil || !b.on {
		return
	}
	b.on = false
	p.schedule.drop(b)
	if b.run != nil {
		b.run.cancel()
		b.run = nil
	}
}

// tick is what the timer calls.
func (p *Prober) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	p.pump(time.Now())
}

// pump runs the probes whose time has come, as far as there is room, and sets the timer for the
// next.
func (p *Prober) pump(now time.Time) {
	p.schedule.collect(now)
	p.schedule.due = slices.DeleteFunc(p.schedule.due, func(b *probe) bool {
		room := b.pod.running == 0 || p.running < atOnce && b.pod.running < atOncePod
		if b.executing || !room {
			return false
		}
		p.execute(b, now)
		return true
	})
	p.arm(now)
}

// arm sets the timer to the earliest time.
func (p *Prober) arm(now time.Time) {
	due, any := p.schedule.waiting.Next()
	switch {
	case !any:
		if p.timer != nil {
			p.timer.Stop()
		}
	case p.timer == nil:
		p.timer = time.AfterFunc(due.Sub(now), p.tick)
	default:
		p.timer.Reset(due.Sub(now))
	}
}

// execute runs a probe once, in a goroutine of its own.
func (p *Prober) execute(b *probe, now time.Time) {
	ctx, cancel := context.WithCancel(p.ctx)
	r := &run{start: now, cancel: cancel}
	b.executing, b.run, b.last = true, r, now
	b.pod.running++
	p.running++
	check, id, limit := b.check, b.container.id, timeout(b.spec)
	p.work.Go(func() {
		defer cancel()
		p.finish(b, r, attempt(ctx, check, id, limit))
	})
}

// attempt runs a probe, and again if it failed to run.
func attempt(ctx context.Context, check check, containerID string, limit time.Duration) outcome {
	var out outcome
	for range tries {
		once, cancel := context.WithTimeout(ctx, limit)
		out = check(once, containerID, limit)
		cancel()
		if out.err == nil || ctx.Err() != nil {
			break
		}
	}
	return out
}

// finish takes the outcome of a run.
func (p *Prober) finish(b *probe, r *run, out outcome) {
	p.mu.Lock()
	now := time.Now()
	b.executing = false
	b.pod.running--
	p.running--
	counted := b.run == r
	var changed bool
	if counted {
		b.run = nil
		changed = b.record(out, now.Sub(r.start))
		if !b.onHold {
			next := following(r.start, now, b.spec)
			if !b.moved {
				b.moved = true
				next = p.schedule.apart(b, next, p.random())
			}
			p.schedule.waiting.Set(b, next)
		}
	}
	if p.ctx.Err() == nil {
		p.pump(now)
	}
	p.mu.Unlock()
	if !counted {
		return
	}
	if out.err != nil && p.o.Logger != nil {
		p.o.Logger.Debug("failed to probe container", "pod", b.pod.namespace+"/"+b.pod.name,
			"container", b.container.name, "probe", b.kind.String(), "error", out.err)
	}
	if e, ok := out.event(b); ok && p.o.Failed != nil {
		p.o.Failed(e)
	}
	if changed && p.o.Changed != nil {
		p.o.Changed(b.pod.uid)
	}
}

// record counts an outcome and says whether the probe's result changed by it.
func (b *probe) record(out outcome, took time.Duration) bool {
	b.count(out, took)
	if out.err != nil {
		return false
	}
	success := out.verdict != failure
	if !success && b.kind != Readiness {
		b.container.message = out.output
	}
	state, reached := b.tally.add(success, b.spec)
	if !reached {
		return false
	}
	b.onHold = state == cycle.ProbeFailure && b.kind != Readiness
	before := b.container.results[b.kind]
	b.container.results[b.kind] = state
	return before != state
}

// verdict is what a probe found.
type verdict int

const (
	success verdict = iota
	warning         // a success with something to say about it
	failure
	unknown
)

// outcome is the end of a probe. With an error the probe failed to run.
type outcome struct {
	verdict verdict
	output  string
	err     error
}

// maxOutput is the most that is kept of what a probe answers, in bytes.
const maxOutput = 10 << 10

func fail(output string) outcome { return outcome{verdict: failure, output: clip(output)} }

func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxOutput)], "\uFFFD")
}

// event is what is told of an outcome, and false for a success.
func (o outcome) event(b *probe) (Event, bool) {
	e := Event{UID: b.pod.uid, Container: b.container.name, ContainerID: b.container.id, Reason: "Unhealthy"}
	switch {
	case o.err != nil && o.verdict == failure:
		e.Message = b.kind.String() + " probe errored and resulted in failure state: " + clip(o.err.Error())
	case o.err != nil:
		e.Message = b.kind.String() + " probe errored and resulted in unknown state: " + clip(o.err.Error())
	case o.verdict == warning:
		e.Reason, e.Message = "ProbeWarning", b.kind.String()+" probe warning: "+o.output
	case o.verdict == failure:
		e.Message = b.kind.String() + " probe failed: " + o.output
	default:
		return Event{}, false
	}
	return e, true
}
