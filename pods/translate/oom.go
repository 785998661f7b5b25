package translate

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// The kubelet's oom_score_adj: a pod whose limits equal its requests is killed last, one without
// requests first, and the others lie between.
const (
	guaranteedScore = -997
	bestEffortScore = 1000
)

// nodeCritical is the class of pods that are killed last whatever they request.
const nodeCritical = "system-node-critical"

// oomScoreAdj is how soon a container is killed where the node has no memory left. machine is the
// node's memory in bytes.
func oomScoreAdj(pod *corev1.Pod, c *corev1.Container, machine int64) int64 {
	if pod.Spec.PriorityClassName == nodeCritical {
		return guaranteedScore
	}
	switch qos := runtimeclass.QOS(pod); {
	case qos == corev1.PodQOSGuaranteed:
		return guaranteedScore
	case qos == corev1.PodQOSBestEffort:
		return bestEffortScore
	case machine <= 0:
		return bestEffortScore - 1
	}
	rest := sharedRequest(pod)
	score := scoreOf(c.Resources.Requests.Memory().Value()+rest, machine)
	if isSidecarOf(pod, c) {
		least := pod.Spec.Containers[0].Resources.Requests.Memory().Value()
		for i := range pod.Spec.Containers {
			least = min(least, pod.Spec.Containers[i].Resources.Requests.Memory().Value())
		}
		score = min(score, scoreOf(least+rest, machine))
	}
	return min(max(score, bestEffortScore+guaranteedScore), bestEffortScore-1)
}

// scoreOf is lower the more of the machine is requested.
func scoreOf(request, machine int64) int64 {
	request = min(request, machine) // more would overflow, and the score has a floor anyway
	return bestEffortScore - bestEffortScore*request/machine
}

// sharedRequest is each container's part of what the pod as a whole requests beyond its containers.
func sharedRequest(pod *corev1.Pod) int64 {
	if pod.Spec.Resources == nil || pod.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	alone := *pod
	alone.Spec.Resources = nil
	sum := runtimeclass.EffectiveRequests(&alone, nil)
	n := int64(len(pod.Spec.Containers) + len(pod.Spec.InitContainers))
	return (pod.Spec.Resources.Requests.Memory().Value() - sum.Memory().Value()) / max(n, 1)
}

func isSidecarOf(pod *corev1.Pod, c *corev1.Container) bool {
	if !runtimeclass.IsSidecar(c) || len(pod.Spec.Containers) == 0 {
		return false
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == c.Name {
			return true
		}
	}
	return false
}
