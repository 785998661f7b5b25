package agent

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/sunaba-project/sunaba/pods/agent/admission"
	"github.com/sunaba-project/sunaba/pods/manifest"
	"github.com/sunaba-project/sunaba/pods/translate"
)

// admitter judges the pods that wait for admission.
type admitter struct{ *loop }

// admit judges the pods that wait: those of the highest priority first, then in the order in which
// their objects stand (AD7).
func (l *admitter) admit(node admission.Node, order map[manifest.Key]int) {
	var waiting []*pod
	for _, p := range l.pods {
		switch {
		case p.rec.Pending == nil || p.rec.Deletion != nil:
		case p.saving:
			p.again = true
		default:
			waiting = append(waiting, p)
		}
	}
	slices.SortFunc(waiting, func(a, b *pod) int {
		if c := admission.Before(a.rec.Pod, b.rec.Pod); c != 0 {
			return c
		}
		return order[a.key()] - order[b.key()]
	})
	for _, p := range waiting {
		l.judge(node, p)
	}
	l.resizes.tryAll(node)
}

// judge admits one pod, lets it wait or fails it.
func (l *admitter) judge(node admission.Node, p *pod) {
	v := admission.Verdict{Pending: admission.ShuttingDown()}
	if !l.shuttingDown.Load() {
		v = node.Judge(p.rec.Pod, l.holders(p))
	}
	if v.Pending == nil && v.Final == nil {
		v.Pending = l.users.Admit(p.rec, v.Pod)
	}
	switch {
	case v.Final != nil:
		p.rec.Pending = nil
		p.rec.End(*v.Final, 0, nil, l.o.now())
		reason, message := admission.Event(*v.Final)
		l.event(p.rec.Pod, "", corev1.EventTypeWarning, reason, message)
	case v.Pending != nil:
		if *p.rec.Pending == *v.Pending && !p.fresh {
			return
		}
		p.rec.Pending = v.Pending
		reason := "FailedScheduling"
		if r := v.Pending.Reason; r == admission.FailedValidation || r == admission.NodeShutdown {
			reason = r
		}
		l.event(p.rec.Pod, "", corev1.EventTypeWarning, reason, v.Pending.Message)
	default:
		p.rec.Pod, p.rec.Handler, p.rec.Pending = v.Pod, v.Handler, nil
		l.inputs.noteInputs(p)
		l.event(p.rec.Pod, "", corev1.EventTypeNormal, "Scheduled",
			fmt.Sprintf("Successfully assigned %s/%s to %s", p.rec.Pod.Namespace, p.rec.Pod.Name, node.Name))
		l.o.Logger.Info("pod admitted", "pod", p.uid(), "namespace", p.rec.Pod.Namespace, "name", p.rec.Pod.Name)
	}
	p.fresh, p.must = false, true
	l.steps.step(p)
}

// holders are the pods, except one, that hold resources of the node.
func (l *admitter) holders(except *pod) []*corev1.Pod {
	var list []*corev1.Pod
	for _, p := range l.pods {
		if p != except && p.holds() {
			list = append(list, p.rec.Pod)
		}
	}
	return list
}

// node is the node as it is now.
func (l *admitter) node() admission.Node {
	classes := l.o.Desired.Classes()
	for _, c := range l.o.Classes() {
		if !slices.ContainsFunc(classes, func(have nodev1.RuntimeClass) bool { return have.Name == c.Name }) {
			classes = append(classes, c)
		}
	}
	return admission.Node{
		Name: l.o.Node.Name, Labels: l.o.Labels, Allocatable: l.o.Node.Allocatable, Classes: classes, Handlers: l.o.Handlers(),
		Pressure: l.evictor.conditions.Active(),
		Sysctls:  func(pod *corev1.Pod) error { return translate.CheckSysctls(pod, l.o.UnsafeSysctls) },
		AppArmor: func(pod *corev1.Pod) error { return translate.CheckAppArmor(pod, l.o.AppArmor) },
		Exclusive: func(namespace, name string) bool {
			claim, found := l.o.Desired.Claim(namespace, name)
			return found && slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod)
		},
	}
}
