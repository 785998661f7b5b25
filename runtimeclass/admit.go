package runtimeclass

import (
	"fmt"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Admit returns the pod as the API server's RuntimeClass admission leaves it
// when it is created: the overhead is that of its class, the class's node
// selector is joined with its own, and their tolerations are united. A pod
// that names no class, or "", stays as it is. The given pod is not changed.
//
// # Errors
//
// ErrNotFound for a class that is not among classes; ErrInvalidArgument for an overhead that is not
// the class's; ErrFailedPrecondition if pod and class select a different value for one label. The
// text names the pod's field and both values.
func Admit(pod *corev1.Pod, classes []nodev1.RuntimeClass) (*corev1.Pod, error) {
	out := pod.DeepCopy()
	var rc *nodev1.RuntimeClass
	if name := pod.Spec.RuntimeClassName; name != nil && *name != "" {
		found, err := Find(classes, *name)
		if err != nil {
			return nil, fmt.Errorf("spec.runtimeClassName: %w", err)
		}
		rc = &found
	}
	if err := setOverhead(&out.Spec, rc); err != nil {
		return nil, err
	}
	spec, err := MergeScheduling(&out.Spec, rc)
	if err != nil {
		return nil, err
	}
	out.Spec = *spec
	return out, nil
}

// setOverhead gives the pod its class's overhead. It may not be set already.
func setOverhead(pod *corev1.PodSpec, rc *nodev1.RuntimeClass) error {
	declared := Overhead(rc)
	if len(pod.Overhead) > 0 && !equality.Semantic.DeepEqual(pod.Overhead, declared) {
		switch {
		case rc == nil:
			return invalid("spec.overhead: the pod has %s and no RuntimeClass, which alone may give it one: remove it", Quantities(pod.Overhead))
		case len(declared) == 0:
			return invalid("spec.overhead: the pod has %s and RuntimeClass %q declares none: remove it", Quantities(pod.Overhead), rc.Name)
		}
		return invalid("spec.overhead: the pod has %s and RuntimeClass %q declares %s: remove it, it is set from the class",
			Quantities(pod.Overhead), rc.Name, Quantities(declared))
	}
	if len(declared) > 0 {
		pod.Overhead = declared
	}
	return nil
}

// Default sets what the API server sets in a pod that is created, as far as
// resources are concerned: what is limited but not requested is requested.
func Default(pod *corev1.Pod) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			requestLimits(&list[i].Resources)
		}
	}
	if pod.Spec.Resources != nil {
		requestLimits(pod.Spec.Resources)
	}
}

func requestLimits(r *corev1.ResourceRequirements) {
	for name, q := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = q.DeepCopy()
		}
	}
}

// CheckReload refuses classes that could not follow those known before: the
// handler of a class cannot be changed (node.k8s.io/v1, RuntimeClass.handler),
// because its pods run under it. Classes may come and go.
//
// # Errors
//
// ErrFailedPrecondition, naming the class and both handlers.
func CheckReload(before, after []nodev1.RuntimeClass) error {
	for _, rc := range after {
		old, err := Find(before, rc.Name)
		if err == nil && old.Handler != rc.Handler {
			return fmt.Errorf("reload RuntimeClass %q: its handler was %q and is %q now, and a handler cannot be changed; give the class another name: %w",
				rc.Name, old.Handler, rc.Handler, errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

// ClassOf names the class of a pod of which only the handler and the declared overhead are known,
// as in the CRI: the one class that has both. It is "" without one, or more than one.
func ClassOf(classes []nodev1.RuntimeClass, handler string, overhead Linux) string {
	name := ""
	for i := range classes {
		rc := &classes[i]
		have := OverheadLinux(Overhead(rc))
		if rc.Handler != handler || have.MemoryBytes != overhead.MemoryBytes || have.CPUShares != overhead.CPUShares && have.CPUQuota != overhead.CPUQuota {
			continue
		}
		if name != "" {
			return ""
		}
		name = rc.Name
	}
	return name
}
