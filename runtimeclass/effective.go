package runtimeclass

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Overhead returns what one pod of this class costs beyond its containers; an
// empty list if the class declares nothing.
func Overhead(rc *nodev1.RuntimeClass) corev1.ResourceList {
	if rc == nil || rc.Overhead == nil {
		return corev1.ResourceList{}
	}
	return clone(rc.Overhead.PodFixed)
}

// EffectiveRequests returns what the scheduler and the kubelet reckon for a
// pod, by the kubelet's rule:
//
//	overhead + max( Σ containers + Σ sidecars,
//	                max over init i of ( Σ sidecars before i + init i ) )
//
// where a sidecar is an init container with restartPolicy Always. Requests given at the level of
// the pod replace that maximum, resource by resource. This is more than the documents' simpler rule
// when a sidecar is declared before a large init container.
func EffectiveRequests(pod *corev1.Pod, overhead corev1.ResourceList) corev1.ResourceList {
	out := aggregate(pod, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests })
	if pod.Spec.Resources != nil {
		override(out, pod.Spec.Resources.Requests)
	}
	add(out, overhead)
	return out
}

// EffectiveLimits returns the pod's limits by the same rule. Overhead is added
// only to resources that have a limit. A container without a limit adds
// nothing, so the sum bounds the pod only if every container has one.
func EffectiveLimits(pod *corev1.Pod, overhead corev1.ResourceList) corev1.ResourceList {
	out := aggregate(pod, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits })
	if pod.Spec.Resources != nil {
		override(out, pod.Spec.Resources.Limits)
	}
	for name, q := range overhead {
		if have, ok := out[name]; ok {
			have.Add(q)
			out[name] = have
		}
	}
	return out
}

func aggregate(pod *corev1.Pod, of func(*corev1.ResourceRequirements) corev1.ResourceList) corev1.ResourceList {
	running := corev1.ResourceList{} // containers and sidecars, together at the end
	for i := range pod.Spec.Containers {
		add(running, of(&pod.Spec.Containers[i].Resources))
	}
	sidecars := corev1.ResourceList{} // those started so far
	starting := corev1.ResourceList{} // the most that starting ever needs
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		need := clone(of(&c.Resources))
		if IsSidecar(c) {
			add(running, need)
			add(sidecars, need)
			need = clone(sidecars)
		} else {
			add(need, sidecars)
		}
		raise(starting, need)
	}
	raise(running, starting)
	return running
}

// IsSidecar tells an init container that is started in order but then runs
// beside the pod's containers.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// override applies resources given for the pod as a whole; only CPU, memory and huge pages may be.
func override(list, pod corev1.ResourceList) {
	for name, q := range pod {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			list[name] = q.DeepCopy()
		}
	}
}

func add(list, more corev1.ResourceList) {
	for name, q := range more {
		sum := list[name].DeepCopy()
		sum.Add(q)
		sum.Format = cmp.Or(sum.Format, q.Format)
		list[name] = sum
	}
}

func raise(list, to corev1.ResourceList) {
	for name, q := range to {
		if have, ok := list[name]; !ok || have.Cmp(q) < 0 {
			list[name] = q.DeepCopy()
		}
	}
}

func clone(list corev1.ResourceList) corev1.ResourceList {
	out := make(corev1.ResourceList, len(list))
	for name, q := range list {
		out[name] = q.DeepCopy()
	}
	return out
}

func sortedNames(list map[corev1.ResourceName]resource.Quantity) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}
