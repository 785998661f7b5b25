package runtimeclass

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// counted are the resources that a pod's class of service depends on.
var counted = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// QOS returns a pod's class of service by Kubernetes' rule, for a pod whose Default is set:
// Guaranteed if every container limits CPU and memory and requests as much, BestEffort if none
// requests or limits either, else Burstable. Init containers count; requests and limits of the pod
// as a whole count instead of its containers'.
func QOS(pod *corev1.Pod) corev1.PodQOSClass {
	all := requirements(pod)
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	guaranteed := len(all) > 0
	for _, r := range all {
		for _, name := range counted {
			count(requests, name, r.Requests)
			if !count(limits, name, r.Limits) {
				guaranteed = false
			}
		}
	}
	if len(requests) == 0 && len(limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	for _, name := range counted {
		request, limit := requests[name], limits[name]
		guaranteed = guaranteed && request.Cmp(limit) == 0
	}
	if guaranteed {
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// requirements are what a pod's class of service is read from.
func requirements(pod *corev1.Pod) []*corev1.ResourceRequirements {
	if r := pod.Spec.Resources; r != nil {
		return []*corev1.ResourceRequirements{r}
	}
	var all []*corev1.ResourceRequirements
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			all = append(all, &list[i].Resources)
		}
	}
	return all
}

// count adds one resource and says whether there is any of it.
func count(to corev1.ResourceList, name corev1.ResourceName, from corev1.ResourceList) bool {
	q, ok := from[name]
	if !ok || q.Sign() <= 0 {
		return false
	}
	add(to, corev1.ResourceList{name: q})
	return true
}

// Quantities writes resources for people, sorted by name: "cpu 250m, memory
// 64Mi"; "nothing" without any.
func Quantities(list map[corev1.ResourceName]resource.Quantity) string {
	var parts []string
	for _, name := range sortedNames(list) {
		q := list[name]
		parts = append(parts, string(name)+" "+q.String())
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
