package cycle

import (
	"k8s.io/apimachinery/pkg/util/duration"

	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// restarts counts restarts and knows the end of the last run before one.
type restarts struct {
	count int
	last  metav1.Time
}

func (r *restarts) add(s *corev1.ContainerStatus) {
	r.count += int(s.RestartCount)
	if t := s.LastTerminationState.Terminated; t != nil && r.last.Before(&t.FinishedAt) {
		r.last = t.FinishedAt
	}
}

// Columns are the columns READY, STATUS and RESTARTS of a pod with its status, as kubectl prints
// them.
func Columns(pod *corev1.Pod, now time.Time) (ready, status, restarted string) {
	st := &pod.Status
	total, readied := len(pod.Spec.Containers), 0
	sidecars := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; runtimeclass.IsSidecar(c) {
			sidecars[c.Name] = true
			total++
		}
	}
	status = string(st.Phase)
	if st.Reason != "" {
		status = st.Reason
	}
	if c := find(st, corev1.PodScheduled); c != nil && c.Reason == corev1.PodReasonSchedulingGated {
		status = c.Reason
	}
	var all, lasting restarts
	initializing := false
	for i := range st.InitContainerStatuses {
		s := &st.InitContainerStatuses[i]
		all.add(s)
		if sidecars[s.Name] {
			lasting.add(s)
			if s.Started != nil && *s.Started {
				if s.Ready {
					readied++
				}
				continue
			}
		}
		if t := s.State.Terminated; !initializing && (t == nil || t.ExitCode != 0) {
			status, initializing = initStatus(s, i, len(pod.Spec.InitContainers)), true
		}
		if initializing { // as kubectl, which looks no further
			break
		}
	}
	if c := find(st, corev1.PodInitialized); !initializing || c != nil && c.Status == corev1.ConditionTrue {
		all = lasting
		var running int
		status, running = appStatus(st, status, &all)
		readied += running
	}
	if pod.DeletionTimestamp != nil && st.Phase != corev1.PodSucceeded && st.Phase != corev1.PodFailed {
		status = "Terminating"
	}
	restarted = strconv.Itoa(all.count)
	if all.count != 0 && !all.last.IsZero() {
		restarted += " (" + Age(all.last.Time, now) + " ago)"
	}
	return fmt.Sprintf("%d/%d", readied, total), status, restarted
}

// initStatus is STATUS for an init container that is not over.
func initStatus(s *corev1.ContainerStatus, at, total int) string {
	switch t, w := s.State.Terminated, s.State.Waiting; {
	case t != nil:
		return "Init:" + terminatedStatus(t)
	case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
		return "Init:" + w.Reason
	}
	return fmt.Sprintf("Init:%d/%d", at, total)
}

// terminatedStatus is STATUS for a container that ended.
func terminatedStatus(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// appStatus is STATUS by the regular containers, from the last to the first, and how many are
// ready.
func appStatus(st *corev1.PodStatus, status string, all *restarts) (string, int) {
	ready := 0
	for i := len(st.ContainerStatuses) - 1; i >= 0; i-- {
		s := &st.ContainerStatuses[i]
		all.add(s)
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "":
			status = s.State.Waiting.Reason
		case s.State.Terminated != nil:
			status = terminatedStatus(s.State.Terminated)
		case s.Ready && s.State.Running != nil:
			ready++
		}
	}
	if status == "Completed" && ready > 0 {
		status = "NotReady"
		if c := find(st, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
			status = "Running"
		}
	}
	return status, ready
}

// find is a condition of a status, nil if it is not there.
func find(st *corev1.PodStatus, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range st.Conditions {
		if st.Conditions[i].Type == of {
			return &st.Conditions[i]
		}
	}
	return nil
}

// Age is how long ago something was, as kubectl writes it; 0s if it is to come, because the clock
// was set back.
func Age(at, now time.Time) string { return duration.HumanDuration(max(0, now.Sub(at))) }
