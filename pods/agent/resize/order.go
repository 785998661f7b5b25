// Package resize keeps the resizes in progress of one pod's containers (RE15). It is
// pure.
package resize

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/agent/admission"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Waiting is a resize that waits.
type Waiting struct {
	// Old is the pod with the resources it has, New with those it is to have.
	Old, New *corev1.Pod
	// Since is when it first had to wait; zero if it was not judged yet.
	Since time.Time
}

// Before says which of two resizes is judged first, as a kubelet does (RE15): one that requests no
// more than before, then the pod of higher priority, then the Guaranteed one, then the one that
// waits longer. It is negative for r, 0 if none of these tells them apart.
func (r Waiting) Before(other Waiting) int {
	return cmp.Or(
		-yes(!r.grows(), !other.grows()),
		admission.Before(r.New, other.New),
		-yes(guaranteed(r.New), guaranteed(other.New)),
		-yes(!r.Since.IsZero(), !other.Since.IsZero()),
		r.Since.Compare(other.Since),
	)
}

// grows says whether more CPU or memory is requested than before.
func (r Waiting) grows() bool {
	old, wanted := runtimeclass.EffectiveRequests(r.Old, r.Old.Spec.Overhead), runtimeclass.EffectiveRequests(r.New, r.New.Spec.Overhead)
	return wanted.Cpu().Cmp(*old.Cpu()) > 0 || wanted.Memory().Cmp(*old.Memory()) > 0
}

func guaranteed(pod *corev1.Pod) bool { return runtimeclass.QOS(pod) == corev1.PodQOSGuaranteed }

// yes compares two answers: positive if only a is true.
func yes(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
