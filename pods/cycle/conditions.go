package cycle

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// podConditions are the pod's conditions (C.4). Times are those of the last status with the same
// value.
func podConditions(n *step, st *corev1.PodStatus) []corev1.PodCondition {
	r := n.r
	var list []corev1.PodCondition
	if d := r.Disruption; d != nil {
		list = append(list, condition(corev1.DisruptionTarget, true, d.Reason, d.Message))
	}
	if r.Pending == nil || containersRan(n) {
		ready := containersReady(n, st)
		pod := ready
		pod.Type = corev1.PodReady
		list = append(list, readyToStart(n), initializedCondition(n, st), pod, ready)
	}
	scheduled := condition(corev1.PodScheduled, true, "", "")
	if p := r.Pending; p != nil {
		scheduled = condition(corev1.PodScheduled, false, p.Reason, p.Message)
	}
	list = append(list, scheduled)
	stampConditions(n, list)
	return list
}

func condition(of corev1.PodConditionType, is bool, reason, message string) corev1.PodCondition {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	return corev1.PodCondition{Type: of, Status: status, Reason: reason, Message: message}
}

// stampConditions gives conditions their transition times and keeps them on record.
func stampConditions(n *step, list []corev1.PodCondition) {
	changed := len(list) != len(n.r.Conditions)
	for i := range list {
		c := &list[i]
		c.ObservedGeneration = n.r.Pod.Generation
		c.LastTransitionTime = seconds(n.now)
		for _, old := range n.r.Conditions {
			if old.Type == c.Type && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		if !changed {
			old := n.r.Conditions[i]
			changed = old.Type != c.Type || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message ||
				old.ObservedGeneration != c.ObservedGeneration
		}
	}
	if changed {
		n.r.Conditions = append([]corev1.PodCondition(nil), list...)
		n.dirty()
	}
}

// readyToStart is CO2.
func readyToStart(n *step) corev1.PodCondition {
	return condition(corev1.PodReadyToStartContainers, sandboxLost(n) == "" && n.r.Final == nil, "", "")
}

// initializedCondition is CO3.
func initializedCondition(n *step, st *corev1.PodStatus) corev1.PodCondition {
	if st.Phase == corev1.PodSucceeded {
		return condition(corev1.PodInitialized, true, "PodCompleted", "")
	}
	var incomplete []string
	for i := range st.InitContainerStatuses {
		s, it := &st.InitContainerStatuses[i], n.items[i]
		if it.kind == sidecar && !*s.Started || it.kind == initial && !s.Ready {
			incomplete = append(incomplete, s.Name)
		}
	}
	if len(incomplete) == 0 || appEverRan(n) {
		return condition(corev1.PodInitialized, true, "", "")
	}
	return condition(corev1.PodInitialized, false, "ContainersNotInitialized", names("incomplete", incomplete))
}

// containersReady is CO4.
func containersReady(n *step, st *corev1.PodStatus) corev1.PodCondition {
	switch st.Phase {
	case corev1.PodSucceeded:
		return condition(corev1.ContainersReady, false, "PodCompleted", "")
	case corev1.PodFailed:
		return condition(corev1.ContainersReady, false, "PodFailed", "")
	case corev1.PodPending, corev1.PodRunning, corev1.PodUnknown:
	}
	var unready []string
	for i := range st.InitContainerStatuses {
		if s := &st.InitContainerStatuses[i]; n.items[i].kind == sidecar && !s.Ready {
			unready = append(unready, s.Name)
		}
	}
	for i := range st.ContainerStatuses {
		if s := &st.ContainerStatuses[i]; !s.Ready {
			unready = append(unready, s.Name)
		}
	}
	if len(unready) == 0 {
		return condition(corev1.ContainersReady, true, "", "")
	}
	return condition(corev1.ContainersReady, false, "ContainersNotReady", names("unready", unready))
}

// names is a list of containers as a kubelet's messages have it.
func names(what string, list []string) string {
	return fmt.Sprintf("containers with %s status: [%s]", what, strings.Join(list, " "))
}

// Ready says whether a pod counts as ready; one that is being deleted does not, whatever its
// condition says (CO7).
func Ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}
