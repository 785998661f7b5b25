package cycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// leastGrace is what is left for a container's stop signal in any case (HK5, TM4).
const leastGrace = 2 * time.Second

// endPod stops what runs of a pod that is over, interrupted or to be deleted, and then removes it.
func endPod(n *step) {
	r := n.r
	for subject, a := range r.Live.Running {
		switch a.Verb {
		case StartContainer, PullImage, RunSandbox, SetUpVolumes, RunPostStart:
			n.cancel(subject, "")
		case StopContainer, RunPreStop, StopSandbox, RemoveSandbox, RemoveContainer, TearDown:
		}
	}
	stopped := stopContainers(n)
	if !stopped {
		reportExceeded(n)
		return
	}
	if r.Interrupted == nil || r.Deletion != nil {
		sealPhase(n)
	}
	if _, busy := n.running("sandbox"); busy || !stopSandboxes(n) || r.Deletion == nil && !r.Purge {
		return
	}
	removePod(n)
}

// reportExceeded tells once that a stop takes longer than a kubelet would wait for (TM6).
func reportExceeded(n *step) {
	at, grace := n.deadline()
	late := at.Add(max(grace/2, 10*time.Second))
	if n.now.Before(late) {
		n.wake(late, "stop of the containers")
		return
	}
	n.once("exceeded", at.String(), corev1.EventTypeWarning, "ExceededGracePeriod", "",
		"Container runtime did not kill the pod within specified grace period.")
}

// sealPhase records the final phase of a pod whose containers are all stopped (PH3, PH7, PH9).
func sealPhase(n *step) {
	if n.r.Final != nil {
		return
	}
	phase := corev1.PodSucceeded
	for _, it := range n.items {
		if end := it.exited(); it.kind == app && (end == nil || end.ExitCode != 0) {
			phase = corev1.PodFailed
		}
	}
	n.r.Final, n.r.Done = &Final{Phase: phase}, true
	n.save()
}

// stopContainers stops all containers and says that none runs. Hooks of all start at once; a
// sidecar's signal waits for the regular containers and the sidecars after it (TM3, TM9).
func stopContainers(n *step) bool {
	over := stopStrays(n)
	deadline, grace := n.deadline()
	for i, it := range n.items {
		if a, busy := n.running(it.name); busy && a.Verb == StartContainer {
			n.cancel(it.name, "")
			over = false
		}
		if !n.live(it.obs) {
			continue
		}
		over = false
		markInterrupted(n, it)
		k := Kill{ID: it.obs.ID, Message: "Stopping container " + it.name, Deadline: deadline, NoHook: grace <= 0}
		if own := it.c.Kill; own != nil && own.ID == k.ID && own.Deadline.Before(deadline) {
			k.Deadline = own.Deadline
		}
		stopContainer(n, it, k, heldByOthers(n, i))
	}
	return over
}

// markInterrupted marks a container that an interruption stops, so that it is started after it
// whatever its exit code: it did not end by itself.
func markInterrupted(n *step, it *item) {
	lasting := n.r.Deletion != nil || n.r.Done || n.r.Final != nil
	if lasting || it.c.Restart != nil || it.kind == initial || it.kind == ephemeral || !n.policy(it, unknownExit) {
		return
	}
	it.c.Restart = &Reason{Reason: "Interrupted", Message: "Stopping container " + it.name}
	n.save()
}

// heldByOthers says that the sidecar at an index waits for others before it is signalled.
func heldByOthers(n *step, at int) bool {
	if n.items[at].kind != sidecar {
		return false
	}
	for i, it := range n.items {
		if n.live(it.obs) && (it.kind != sidecar || i > at) {
			return true
		}
	}
	return false
}

// stopStrays stops containers that are not the present attempt of one of the pod's, and says that
// none runs.
func stopStrays(n *step) bool {
	over := true
	for i := range n.o.Containers {
		o := &n.o.Containers[i]
		if isPresent(n, o) || !n.live(o) {
			continue
		}
		over = false
		if subject := "stop/" + o.ID; n.free(subject, "stop of "+o.Name) && mayStop(n, o.ID) {
			n.act(Action{Verb: StopContainer, Subject: subject, Container: o.Name, ID: o.ID, Grace: leastGrace,
				Deadline: n.now.Add(leastGrace)})
		}
	}
	return over
}

// isPresent says that an observation is the present attempt of one of the pod's containers.
func isPresent(n *step, o *Observation) bool {
	for _, it := range n.items {
		if it.obs == o {
			return true
		}
	}
	return false
}

// mayStop says that the last stop of a container or sandbox was long enough ago.
func mayStop(n *step, id string) bool {
	at, ok := n.r.Live.Stopped[id]
	if due := at.Add(retryStop); ok && n.now.Before(due) && !at.After(n.now) {
		n.wake(due, "")
		return false
	}
	return true
}

// stopContainer takes the next step to stop a container that runs: the preStop hook, then, unless
// it is to wait for others, the signal with what is left of the grace period (HK4, HK5, TM4).
func stopContainer(n *step, it *item, k Kill, hold bool) {
	n.once("kill/"+it.name, k.ID, corev1.EventTypeNormal, "Killing", it.name, k.Message)
	cancelHook(n, it)
	if !k.NoHook && runPreStop(n, it, k) {
		return
	}
	if hold && n.now.Before(k.Deadline) {
		n.wake(k.Deadline, "containers that end before "+it.name)
		return
	}
	grace := max(leastGrace, k.Deadline.Sub(n.now))
	a := Action{Verb: StopContainer, Subject: it.name, Container: it.name, ID: k.ID, Grace: grace, Deadline: n.now.Add(grace)}
	if under, busy := n.running(it.name); busy {
		if under.Verb != StopContainer || a.Deadline.After(under.Deadline.Add(-time.Second)) {
			if n.d.Waiting == "" {
				n.d.Waiting = "stop of " + it.name
			}
			return
		}
		a.Subject = "again/" + it.name // TM2: the grace period was shortened
		if second, busy := n.running(a.Subject); busy && !a.Deadline.Before(second.Deadline.Add(-time.Second)) {
			return
		}
	}
	if n.due("stop/"+k.ID, "stop of "+it.name) && mayStop(n, k.ID) {
		n.act(a)
	}
}

// cancelHook cancels the postStart hook of a container that is stopped.
func cancelHook(n *step, it *item) {
	n.cancel("hook/"+it.name, RunPreStop)
}

// runPreStop runs the hook before a stop and says that it is to be waited for. It starts
// again if the agent ended during it (HK12), within the same grace period.
func runPreStop(n *step, it *item, k Kill) bool {
	if it.spec.Lifecycle == nil || it.spec.Lifecycle.PreStop == nil || it.obs.State != StateRunning {
		return false
	}
	h := &it.c.PreStop
	if h.ID != k.ID {
		*h = Hook{ID: k.ID}
	}
	subject := "hook/" + it.name
	a, busy := n.running(subject)
	switch {
	case h.Over:
		return false
	case !n.now.Before(k.Deadline): // out of time
		if h.Begun {
			n.once("prestop/"+it.name, k.ID, corev1.EventTypeWarning, "FailedPreStopHook", it.name, "PreStopHook failed")
		}
		n.cancel(subject, "")
		h.Over = true
		n.save()
		return false
	case busy:
		n.wake(k.Deadline, string(a.Verb)+" of "+it.name)
		return true
	}
	h.Begun = true
	n.save()
	n.act(Action{Verb: RunPreStop, Subject: subject, Container: it.name, ID: k.ID, Deadline: k.Deadline})
	n.wake(k.Deadline, "RunPreStop of "+it.name)
	return true
}

// stopSandboxes stops all sandboxes and says that they are (PH10).
func stopSandboxes(n *step) bool {
	over := true
	for i := range n.o.Sandboxes {
		s := &n.o.Sandboxes[i]
		if _, stopped := n.r.Live.Stopped[s.ID]; stopped && !s.Ready {
			continue
		}
		over = false
		if subject := "stop/" + s.ID; n.free(subject, "stop of the sandbox") && mayStop(n, s.ID) {
			n.act(Action{Verb: StopSandbox, Subject: subject, ID: s.ID})
		}
	}
	return over
}

// removePod removes all that is left of a deleted or purged pod: containers, sandboxes, then its
// files (TM1).
func removePod(n *step) {
	for i := range n.o.Containers {
		o := &n.o.Containers[i]
		removeOne(n, Action{Verb: RemoveContainer, Container: o.Name, ID: o.ID})
	}
	if len(n.o.Containers) > 0 {
		return
	}
	for i := range n.o.Sandboxes {
		removeOne(n, Action{Verb: RemoveSandbox, ID: n.o.Sandboxes[i].ID})
	}
	if len(n.o.Sandboxes) > 0 || len(n.r.Live.Running) > 0 {
		return
	}
	if n.r.Live.TornDown {
		n.d.Over = n.r.Deletion != nil
		return
	}
	if n.free("pod", "removal of the pod's files") {
		n.act(Action{Verb: TearDown, Subject: "pod"})
	}
}

// removeOne asks for the removal of one container or sandbox.
func removeOne(n *step, a Action) {
	a.Subject = "remove/" + a.ID
	if n.free(a.Subject, "removal of "+a.ID) {
		n.act(a)
	}
}

// collectGarbage removes what is of no use any more: of each container all dead ones but the
// newest, and sandboxes without containers but the newest (GC2, GC3, SB6). Containers that nobody
// knows are stopped.
func collectGarbage(n *step) {
	if n.r.Deletion != nil {
		return
	}
	if !n.ending() {
		stopStrays(n)
	}
	used := map[string]bool{}
	for i := range n.o.Containers {
		o := &n.o.Containers[i]
		used[o.SandboxID] = true
		if n.live(o) || isPresent(n, o) || !outdated(n, o) {
			continue
		}
		removeOne(n, Action{Verb: RemoveContainer, Container: o.Name, ID: o.ID})
	}
	newest := newestSandbox(n)
	for i := range n.o.Sandboxes {
		if s := &n.o.Sandboxes[i]; s != newest && !s.Ready && !used[s.ID] {
			removeOne(n, Action{Verb: RemoveSandbox, ID: s.ID})
		}
	}
}

// outdated says that a newer dead container of the same name exists, or that it never ran.
func outdated(n *step, o *Observation) bool {
	if o.State == StateCreated || n.r.Containers[o.Name] == nil {
		return true
	}
	for i := range n.o.Containers {
		if other := &n.o.Containers[i]; other.Name == o.Name && other.Attempt > o.Attempt && other.State == StateExited {
			return true
		}
	}
	return false
}
