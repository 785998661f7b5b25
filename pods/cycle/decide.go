package cycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// postStartError is the waiting reason of a container whose postStart hook failed.
const postStartError = "PostStartHookError"

// Next decides what is to be done now. It may be called at any time and any number of times: what
// was started is not started again, and what the record says but Observed does not show is done again.
// The record is changed. If Save is set it must be written before the actions are started; only a
// container may be created meanwhile, and started when the record is written.
func Next(r *Record, o Observed, now time.Time, s Settings) Decision {
	d := Decision{}
	n := &step{r: r, o: &o, now: now, s: &s, d: &d}
	prepareRecord(n)
	takeResults(n)
	observeSandboxes(n)
	observeAttempts(n)
	checkBoot(n)
	observeAll(n)
	admitPod(n)
	checkDeadline(n)
	switch {
	case n.ending():
		endPod(n)
	case r.Pending != nil:
		d.Waiting = "admission: " + r.Pending.Message
	default:
		runPod(n)
		if n.ending() {
			endPod(n)
		}
	}
	collectGarbage(n)
	probeSets(n)
	d.Status = podStatus(n)
	slices.Sort(d.Cancel)
	d.Cancel = slices.Compact(d.Cancel)
	return d
}

// admitPod notes when the agent accepted the pod (PH11).
func admitPod(n *step) {
	if n.r.Pending == nil && n.r.StartTime.IsZero() && n.r.Deletion == nil {
		n.r.StartTime = n.now
		n.save()
	}
}

// checkDeadline ends a pod that was active for too long (DL1).
func checkDeadline(n *step) {
	seconds := n.r.Pod.Spec.ActiveDeadlineSeconds
	if seconds == nil || n.r.StartTime.IsZero() || n.ending() {
		return
	}
	at := n.r.activeFrom().Add(time.Duration(*seconds) * time.Second)
	if n.now.Before(at) {
		n.wake(at, "its deadline")
		return
	}
	const reason, message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
	n.r.End(Final{corev1.PodFailed, reason, message}, -1, nil, n.now)
	n.event(corev1.EventTypeNormal, reason, "", message)
	n.save()
}

// runPod starts and keeps what is to run.
func runPod(n *step) {
	if appsFinished(n) {
		finishPod(n)
		return
	}
	if !volumesUp(n) && sandboxLost(n) == "" {
		watchRunning(n)
	}
	if !sandboxReady(n) {
		return
	}
	if runInit(n); n.ending() {
		return
	}
	for _, it := range n.items {
		if it.kind == ephemeral {
			keepContainer(n, it, false)
		}
	}
	if n.r.Initialized || initDone(n) {
		startApps(n)
	}
}

// watchRunning is called while the volumes are not set up yet: it does nothing but watch over what
// runs, since starts wait for volumes.
func watchRunning(n *step) {
	for _, it := range n.items {
		if n.live(it.obs) {
			watchContainer(n, it)
		}
	}
}

// appsFinished says that all regular containers are over and none is started again.
func appsFinished(n *step) bool {
	for _, it := range n.items {
		if it.kind != app {
			continue
		}
		if _, busy := n.running(it.name); busy || it.exited() == nil || startWanted(n, it) {
			return false
		}
	}
	return true
}

// finishPod marks the pod as done: what still runs of it is stopped (PH10).
func finishPod(n *step) {
	n.r.Done = true
	n.r.Stopping = &Deletion{At: n.now, Grace: n.r.grace(), Deadline: n.now.Add(n.r.grace())}
	n.save()
}

// volumesUp says that the volumes are set up, and sets them up otherwise.
func volumesUp(n *step) bool {
	if n.o.Volumes {
		return true
	}
	if n.free("volumes", "volumes") {
		n.act(Action{Verb: SetUpVolumes, Subject: "volumes"})
	}
	return false
}

// newestSandbox is the sandbox with the highest attempt, nil if the pod has no sandbox.
func newestSandbox(n *step) *Sandbox {
	var found *Sandbox
	for i := range n.o.Sandboxes {
		if s := &n.o.Sandboxes[i]; found == nil || s.Attempt > found.Attempt {
			found = s
		}
	}
	return found
}

// sandboxLost says why the pod needs a new sandbox (SB1), "" if it has one.
func sandboxLost(n *step) string {
	s, ready := newestSandbox(n), 0
	for i := range n.o.Sandboxes {
		if n.o.Sandboxes[i].Ready {
			ready++
		}
	}
	switch {
	case s == nil:
		return "it does not exist"
	case !s.Ready:
		return "the newest is not ready"
	case ready > 1:
		return "more than one is ready"
	case s.HostNetwork != n.r.Pod.Spec.HostNetwork:
		return "the network mode changed"
	case !s.HostNetwork && len(s.IPs) == 0:
		return "it has no address"
	}
	return ""
}

// sandboxReady says that the sandbox is ready, and makes one otherwise.
func sandboxReady(n *step) bool {
	r := n.r
	if _, busy := n.running("sandbox"); busy {
		n.free("sandbox", "sandbox")
		return false
	}
	if sandboxLost(n) == "" && r.Stopping == nil {
		n.sandbox = newestSandbox(n)
		delete(r.Live.Failures, "sandbox")
		if !slices.Equal(r.IPs, n.sandbox.IPs) {
			r.IPs = append([]string(nil), n.sandbox.IPs...)
			n.dirty()
		}
		return n.o.Volumes
	}
	if endNever(n, false) {
		return false
	}
	if !sandboxCleared(n) || !n.o.Volumes || !n.free("sandbox", "sandbox") {
		return false
	}
	if r.Stopping != nil {
		r.Stopping = nil
		n.save()
	}
	switch {
	case r.Sandboxes == 0:
		r.Sandboxes = 1
		n.dirty() // a record without a sandbox stands for this one too (observeSandboxes)
	case r.SandboxID != "":
		r.Sandbox, r.Sandboxes, r.SandboxID = r.Sandbox+1, r.Sandboxes+1, ""
		n.save()
	}
	if r.Initialized {
		r.Initialized = false
		n.save()
	}
	n.act(Action{Verb: RunSandbox, Subject: "sandbox", Attempt: r.Sandbox})
	return false
}

// sandboxCleared says that nothing of older sandboxes runs, and stops it otherwise.
func sandboxCleared(n *step) bool {
	if allStopped(n) {
		return true
	}
	if n.r.Stopping == nil {
		n.r.Stopping = &Deletion{At: n.now, Grace: n.r.grace(), Deadline: n.now.Add(n.r.grace())}
		n.save()
		n.once("sandbox", n.r.SandboxID, corev1.EventTypeNormal, "SandboxChanged", "",
			"Pod sandbox changed, it will be killed and re-created.")
	}
	return stopContainers(n) && stopSandboxes(n)
}

// allStopped says that no container runs and all sandboxes were stopped.
func allStopped(n *step) bool {
	for i := range n.o.Containers {
		if n.live(&n.o.Containers[i]) {
			return false
		}
	}
	for _, it := range n.items {
		if _, busy := n.running(it.name); busy {
			return false
		}
	}
	for i := range n.o.Sandboxes {
		s := &n.o.Sandboxes[i]
		if _, stopped := n.r.Live.Stopped[s.ID]; s.Ready || !stopped {
			return false
		}
	}
	return true
}
