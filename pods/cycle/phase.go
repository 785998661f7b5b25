package cycle

import corev1 "k8s.io/api/core/v1"

// tally counts the containers that decide about the phase.
type tally struct {
	running, waiting, stopped, succeeded int
	// initialPending and sidecarPending are init containers that are not over or started yet.
	initialPending, sidecarPending bool
}

// podPhase is the pod's phase (PH2 to PH9).
func podPhase(n *step, st *corev1.PodStatus) corev1.PodPhase {
	r := n.r
	switch {
	case r.Final != nil:
		return r.Final.Phase
	case r.Pending != nil || r.Interrupted != nil:
		return corev1.PodPending
	}
	t := countContainers(n, st)
	switch {
	case t.initialPending, t.sidecarPending && !appEverRan(n):
		return corev1.PodPending
	case t.waiting > 0:
		return corev1.PodPending
	case t.running > 0:
		return corev1.PodRunning
	case t.stopped > 0: // of a pod that is over, Final says the rest
		return corev1.PodRunning
	}
	return corev1.PodPending
}

// countContainers goes through the statuses of the containers (PH3 to PH5).
func countContainers(n *step, st *corev1.PodStatus) tally {
	var t tally
	for i, it := range n.items {
		switch it.kind {
		case initial:
			t.initialPending = t.initialPending || !n.r.Initialized && !n.r.Done && !initOver(n, it)
		case sidecar:
			s := st.InitContainerStatuses[i]
			if s.State.Running != nil {
				t.running++
			}
			if s.State.Terminated == nil && !*s.Started {
				t.sidecarPending = true
				if s.State.Waiting != nil && s.LastTerminationState.Terminated == nil && !appEverRan(n) {
					t.waiting++
				}
			}
		case app:
			t.app(&st.ContainerStatuses[i-len(st.InitContainerStatuses)])
		case ephemeral:
		}
	}
	return t
}

// app counts a regular container: one that waits after a run counts as stopped (PH4).
func (t *tally) app(s *corev1.ContainerStatus) {
	switch {
	case s.State.Running != nil:
		t.running++
	case s.State.Terminated != nil:
		t.stopped++
		if s.State.Terminated.ExitCode == 0 {
			t.succeeded++
		}
	case s.LastTerminationState.Terminated != nil:
		t.stopped++
	default:
		t.waiting++
	}
}

// appEverRan says that a regular container of the pod was started once.
func appEverRan(n *step) bool {
	for _, it := range n.items {
		if it.kind == app && (it.c.ID != "" || it.c.Last != nil) {
			return true
		}
	}
	return false
}
