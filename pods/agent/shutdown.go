package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/agent/shutdown"
	"github.com/sunaba-project/sunaba/pods/pressure"
)

// terminator ends the pods when the node shuts down (C.25).
type terminator struct {
	*loop
	// now is the shutdown in progress or over, nil before one.
	now *course
	// next is when turn is to be called at the latest; zero for never.
	next time.Time
}

// course is one shutdown.
type course struct {
	plan  *shutdown.Plan
	until time.Time // when all of it is out of time
	// over is closed when the pods are over, or out of time, or the shutdown was taken back, which
	// is err. finished says that it is closed.
	over     chan struct{}
	finished bool
	err      error
}

// Shutdown ends all pods because the node shuts down, and returns when they are over or their time
// is, which is Options.Shutdown. No pod is admitted from then on. Called again it waits for the
// same shutdown. When the context ends, the shutdown continues.
//
// # Errors
//
// ErrFailedPrecondition if it is turned off; ErrAborted if the shutdown was taken back meanwhile;
// the context's.
func (a *Agent) Shutdown(ctx context.Context) error {
	wait, err := a.BeginShutdown(ctx)
	if err != nil {
		return err
	}
	return wait(ctx)
}

// BeginShutdown is the first part of Shutdown: a CancelShutdown from now on is about this shutdown.
// wait is the other part.
func (a *Agent) BeginShutdown(ctx context.Context) (wait func(context.Context) error, err error) {
	var c *course
	err = a.l.ask(ctx, func() error {
		if a.l.o.Shutdown.Total <= 0 {
			return fmt.Errorf("shut down pods: it is turned off, pods.shutdown_grace is 0: %w", errdefs.ErrFailedPrecondition)
		}
		a.l.ending.begin()
		c = a.l.ending.now
		return nil
	})
	return func(ctx context.Context) error {
		select {
		case <-c.over:
			return c.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}, err
}

// CancelShutdown takes a shutdown back: pods are admitted and started again (SD8). It is no error
// if there is none.
//
// # Errors
//
// The context's.
func (a *Agent) CancelShutdown(ctx context.Context) error {
	return a.l.ask(ctx, func() error { a.l.ending.cancel(); return nil })
}

// ShuttingDown says whether Shutdown was called and not taken back.
func (a *Agent) ShuttingDown() bool { return a.l.shuttingDown.Load() }

// begin starts a shutdown, unless one is in progress or over.
func (t *terminator) begin() {
	if t.now != nil {
		return
	}
	now := t.o.now()
	t.now = &course{plan: shutdown.Begin(t.o.Shutdown, now), until: now.Add(t.o.Shutdown.Total), over: make(chan struct{})}
	t.shuttingDown.Store(true)
	t.o.Logger.Info("node shuts down, pods are being stopped", "grace", t.o.Shutdown.Total, "critical", t.o.Shutdown.Critical)
	t.nodeEvent(corev1.EventTypeNormal, "Shutdown", "Shutdown manager detected shutdown event")
	t.turn()
}

// cancel takes the shutdown back.
func (t *terminator) cancel() {
	c := t.now
	if c == nil {
		return
	}
	t.now, t.next = nil, time.Time{}
	t.shuttingDown.Store(false)
	if !c.finished {
		c.finished, c.err = true, fmt.Errorf("shut down pods: it was taken back: %w", errdefs.ErrAborted)
		close(c.over)
	}
	t.o.Logger.Info("shutdown of the node taken back, pods are started again")
	t.nodeEvent(corev1.EventTypeNormal, "Shutdown", "Shutdown manager detected shutdown cancellation")
	for _, p := range t.ordered() {
		t.resume(p)
	}
	t.plan.sync()
}

// resumeAll starts pods again that a shutdown interrupted of which this agent does not know: it was
// killed in the middle of it. Those of another boot are the life cycle's (SD7).
func (t *terminator) resumeAll() {
	for _, p := range t.pods {
		if t.now == nil && p.rec.BootID == t.o.BootID && p.rec.Interrupted != nil {
			p.rec.Resume()
			p.must = true
		}
	}
}

// resume starts a pod again that was interrupted.
func (t *terminator) resume(p *pod) {
	if p.rec.Interrupted == nil {
		return
	}
	p.rec.Resume()
	p.must = true
	t.steps.step(p)
}

// turn continues the shutdown. It is called after everything that happens.
func (t *terminator) turn() {
	c := t.now
	if c == nil || c.finished {
		return
	}
	now := t.o.now()
	over := !now.Before(c.until)
	for t.next = c.until; t.listed && t.wanted; {
		var orders []shutdown.Order
		if orders, t.next, over = c.plan.Next(t.left(), now); len(orders) == 0 {
			break
		}
		for _, o := range orders {
			t.interrupt(o, now)
		}
	}
	if !over {
		return
	}
	c.finished, t.next = true, time.Time{}
	close(c.over)
	if late := t.late(); len(late) > 0 {
		t.o.Logger.Warn("failed to stop all pods in the time of the shutdown", "pods", late)
		return
	}
	t.o.Logger.Info("pods stopped, the node may shut down")
}

// left are the pods of which something runs or may be started.
func (t *terminator) left() []shutdown.Pod {
	var list []shutdown.Pod
	for _, p := range t.ordered() {
		busy := p.seen.Live() || p.saving || len(p.cancel) > 0
		if !busy && (p.rec.Final != nil || p.rec.Pending != nil) {
			continue
		}
		list = append(list, shutdown.Pod{UID: p.uid(), Critical: pressure.Critical(p.rec.Pod), Over: !busy})
	}
	return list
}

// late are the names of pods that still run.
func (t *terminator) late() []string {
	var names []string
	for _, p := range t.ordered() {
		if p.seen.Live() {
			names = append(names, p.rec.Pod.Namespace+"/"+p.rec.Pod.Name)
		}
	}
	return names
}

// interrupt ends one pod.
func (t *terminator) interrupt(o shutdown.Order, now time.Time) {
	p := t.pods[o.UID]
	p.own()
	p.rec.Interrupt(o.Grace, now)
	p.must = true
	t.steps.step(p)
}
