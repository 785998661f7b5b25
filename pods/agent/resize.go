package agent

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/agent/admission"
	"github.com/sunaba-project/sunaba/pods/agent/resize"
	"github.com/sunaba-project/sunaba/pods/cycle"
)

// retryResize is the pause after the server refused a resize, as one below what is in use.
const retryResize = 10 * time.Second

// resizer changes the resources of running pods (RE15).
type resizer struct{ *loop }

// tryAll judges the resizes that wait in their order. Where the record of a pod is being written,
// those after it wait for that, so that none takes its room.
func (l *resizer) tryAll(node admission.Node) {
	var waiting []*pod
	order := map[*pod]resize.Waiting{}
	for _, p := range l.ordered() {
		if p.resize.Waits(p.rec) {
			waiting = append(waiting, p)
			order[p] = p.resize.Waiting(p.rec)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *pod) int { return order[a].Before(order[b]) })
	for _, p := range waiting {
		l.try(node, p)
		if p.saving && p.resize.Again {
			return
		}
	}
}

// try takes over resources that wait, if they fit now, and applies those that are taken over.
func (l *resizer) try(node admission.Node, p *pod) {
	if !p.resize.Waits(p.rec) {
		return
	}
	p.resize.Again = p.saving || p.resize.Busy // what is being applied would count for these too
	if p.resize.Again {
		return
	}
	w := p.resize.Waiting(p.rec)
	if now, ever := node.Fits(w.New, l.admission.holders(p)); !now {
		if event, message := p.resize.Postpone(ever, l.o.now()); event != "" {
			l.event(p.rec.Pod, "", corev1.EventTypeWarning, event, message)
			l.steps.step(p)
		}
		return
	}
	p.must = true
	if restart := p.resize.Take(p.rec, w); len(restart) > 0 {
		if err := p.rec.Restart(restart, cycle.Reason{Reason: "Resize", Message: "Container resized, will be restarted"}); err != nil {
			l.o.Logger.Warn("failed to restart resized containers", "pod", p.uid(), "error", err)
		}
	}
	l.steps.step(p)
}

// applyResize gives running containers the resources of the pod's record, in a worker. Containers
// that do not run get them when they are created.
func (l *resizer) applyResize(p *pod) {
	if p.resize.Busy || p.saving || l.o.now().Before(p.resize.Retry) {
		return
	}
	p.resize.Retry = time.Time{}
	if len(p.rec.Resizing) == 0 {
		return
	}
	sandbox := p.seen.Newest()
	ids := map[string]string{}
	for _, name := range p.rec.Resizing {
		if c := p.seen.Running(name); c != nil && p.rec.Containers[name] != nil && p.rec.Containers[name].Restart == nil {
			ids[name] = c.ID
		}
	}
	if sandbox == nil || p.rec.Deletion != nil || p.rec.Done {
		p.rec.Resizing = nil
		return
	}
	p.resize.Busy = true
	in, names := l.steps.input(p, sandbox.Attempt), slices.Clone(p.rec.Resizing)
	p.resize.Progress = resize.Condition(corev1.PodResizeInProgress, "", "", l.o.now())
	l.work.Go(func() {
		applied, err := l.worker.Resize(l.ctx, in, sandbox.ID, ids)
		l.post(func() {
			for _, name := range applied {
				if c := p.rec.Containers[name]; c != nil && c.ID == ids[name] {
					c.InForce, p.must = nil, true
				}
			}
			l.resized(p, names, err)
		})
	})
}

// resized takes in the end of a resize.
func (l *resizer) resized(p *pod, names []string, err error) {
	p.resize.Busy = false
	if err != nil {
		p.resize.Retry = l.o.now().Add(retryResize)
		p.resize.Progress = resize.Condition(corev1.PodResizeInProgress, corev1.PodReasonError, err.Error(), l.o.now())
		l.event(p.rec.Pod, "", corev1.EventTypeWarning, "ResizeError", err.Error())
	} else {
		p.resize.Retry, p.resize.Progress = time.Time{}, nil
		p.rec.Resizing = slices.DeleteFunc(p.rec.Resizing, func(name string) bool { return slices.Contains(names, name) })
		p.must = true
	}
	if l.pods[p.uid()] == p {
		l.steps.step(p)
	}
}
