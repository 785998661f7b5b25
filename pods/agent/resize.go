package agent

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/pods/agent/admission"
	"github.com/sunaba-project/sunaba/pods/agent/records"
	"github.com/sunaba-project/sunaba/pods/agent/worker"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/desired"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// retryResize is the pause after the server refused a resize, as one below what is in use.
const retryResize = 10 * time.Second

// resize is what is under way with the resources of a pod's containers (RE15).
type resize struct {
	// wanted are the new resources of containers that do not fit yet.
	wanted map[string]corev1.ResourceRequirements
	// since is when they first had to wait.
	since time.Time
	// again says that it is to be looked whether they fit, busy that a worker applies some, retry
	// when the next one is to.
	again bool
	busy  bool
	retry time.Time
	// pending and progress are the conditions, nil if they are not there.
	pending, progress *corev1.PodCondition
}

// resizer changes the resources of running pods.
type resizer struct{ *loop }

// resizing is what the record of a pod says about resources that were not taken over when the agent
// ended.
func resizing(rec *records.Record) resize {
	var r resize
	for _, c := range manifest.Containers(rec.Manifest) {
		have, _ := worker.Container(rec.Pod, c.Name)
		if have == nil || equality.Semantic.DeepEqual(have.Resources, c.Resources) {
			continue
		}
		if r.wanted == nil {
			r.wanted = map[string]corev1.ResourceRequirements{}
		}
		r.wanted[c.Name] = c.Resources
	}
	return r
}

// resizeLater keeps the old resources of containers in a pod's new form until they fit.
func (l *resizer) resizeLater(p *pod, pod *corev1.Pod, names []string) {
	for _, name := range names {
		c, _ := worker.Container(pod, name)
		old, _ := worker.Container(p.rec.Pod, name)
		if c == nil || old == nil {
			continue
		}
		if p.resize.wanted == nil {
			p.resize.wanted = map[string]corev1.ResourceRequirements{}
		}
		p.resize.wanted[name] = *c.Resources.DeepCopy()
		c.Resources = *old.Resources.DeepCopy()
	}
}

// waitsForResize says that a pod has resources that are to be taken over.
func (p *pod) waitsForResize() bool {
	return len(p.resize.wanted) > 0 && p.rec.Pending == nil && p.rec.Final == nil && p.rec.Deletion == nil
}

// resizedPod is a pod with the resources that it waits for.
func (p *pod) resizedPod() *corev1.Pod {
	pod := p.rec.Pod.DeepCopy()
	for name, wanted := range p.resize.wanted {
		if c, _ := worker.Container(pod, name); c != nil {
			c.Resources = wanted
		}
	}
	return pod
}

// tryAll judges the resizes that wait in their order (RE15). Where the record of a pod is being
// written, those after it wait for that, so that none takes its room.
func (l *resizer) tryAll(node admission.Node) {
	var waiting []*pod
	order := map[*pod]admission.Resize{}
	for _, p := range l.ordered() {
		if p.waitsForResize() {
			waiting = append(waiting, p)
			order[p] = admission.Resize{Old: p.rec.Pod, New: p.resizedPod(), Since: p.resize.since}
		}
	}
	slices.SortStableFunc(waiting, func(a, b *pod) int { return order[a].Before(order[b]) })
	for _, p := range waiting {
		l.tryResize(node, p)
		if p.saving && p.resize.again {
			return
		}
	}
}

// tryResize takes over resources that wait, if they fit now, and applies those that are taken over.
func (l *resizer) tryResize(node admission.Node, p *pod) {
	if !p.waitsForResize() {
		return
	}
	p.resize.again = p.saving || p.resize.busy // what is being applied would count for these too
	if p.resize.again {
		return
	}
	pod := p.resizedPod()
	if now, ever := node.Fits(pod, l.admission.holders(p)); !now {
		l.postpone(p, ever)
		return
	}
	var restart []string
	for name := range p.resize.wanted {
		c, _ := worker.Container(pod, name)
		old, _ := worker.Container(p.rec.Pod, name)
		if c != nil && old != nil && desired.ResizeRestarts(c, &old.Resources, &c.Resources) {
			restart = append(restart, name)
		}
		if entry := p.rec.Containers[name]; entry != nil && old != nil && entry.InForce == nil {
			entry.InForce = old.Resources.DeepCopy()
		}
		if !slices.Contains(p.rec.Resizing, name) {
			p.rec.Resizing = append(p.rec.Resizing, name)
		}
	}
	slices.Sort(p.rec.Resizing)
	p.resize.wanted, p.resize.pending, p.resize.since = nil, nil, time.Time{}
	p.rec.Pod, p.must = pod, true
	if len(restart) > 0 {
		slices.Sort(restart)
		if err := p.rec.Restart(restart, cycle.Reason{Reason: "Resize", Message: "Container resized, will be restarted"}); err != nil {
			l.o.Logger.Warn("failed to restart resized containers", "pod", p.uid(), "error", err)
		}
	}
	l.steps.step(p)
}

// postpone notes that a resize must wait, for good or for room.
func (l *resizer) postpone(p *pod, ever bool) {
	reason, event, message := corev1.PodReasonDeferred, "ResizeDeferred", "Node didn't have enough resource for the pod's new requests"
	if !ever {
		reason, event, message = corev1.PodReasonInfeasible, "ResizeInfeasible", "Node didn't have enough capacity for the pod's new requests"
	}
	if p.resize.pending != nil && p.resize.pending.Reason == reason {
		return
	}
	if p.resize.pending == nil {
		p.resize.since = l.o.now()
	}
	p.resize.pending = condition(corev1.PodResizePending, reason, message, l.o.now())
	l.event(p.rec.Pod, "", corev1.EventTypeWarning, event, message)
	l.steps.step(p)
}

func condition(kind corev1.PodConditionType, reason, message string, now time.Time) *corev1.PodCondition {
	return &corev1.PodCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
}

// applyResize gives running containers the resources of the pod's record, in a worker. Containers
// that do not run get them when they are created.
func (l *resizer) applyResize(p *pod) {
	if p.resize.busy || p.saving || l.o.now().Before(p.resize.retry) {
		return
	}
	p.resize.retry = time.Time{}
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
	p.resize.busy = true
	in, names := l.steps.input(p, sandbox.Attempt), slices.Clone(p.rec.Resizing)
	p.resize.progress = condition(corev1.PodResizeInProgress, "", "", l.o.now())
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
	p.resize.busy = false
	if err != nil {
		p.resize.retry = l.o.now().Add(retryResize)
		p.resize.progress = condition(corev1.PodResizeInProgress, corev1.PodReasonError, err.Error(), l.o.now())
		l.event(p.rec.Pod, "", corev1.EventTypeWarning, "ResizeError", err.Error())
	} else {
		p.resize.retry, p.resize.progress = time.Time{}, nil
		p.rec.Resizing = slices.DeleteFunc(p.rec.Resizing, func(name string) bool { return slices.Contains(names, name) })
		p.must = true
	}
	if l.pods[p.uid()] == p {
		l.steps.step(p)
	}
}
