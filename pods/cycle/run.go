package cycle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// initProgress is the index of the furthest init container that was asked for in this sandbox, -1
// for none.
func initProgress(n *step) int {
	last := -1
	for i, it := range n.items {
		if (it.kind == initial || it.kind == sidecar) && n.fresh(it) {
			last = i
		}
	}
	return last
}

// initOver says that an init container ended with 0 in this sandbox, or a sidecar is started in it.
func initOver(n *step, it *item) bool {
	if !n.fresh(it) {
		return false
	}
	if it.kind == sidecar {
		return it.obs != nil && it.obs.State == StateRunning && it.c.Started == it.obs.ID
	}
	return it.exited() != nil && it.exited().ExitCode == 0
}

// initDone says that the last init container is over, and so all before it are (IN1, SC1).
func initDone(n *step) bool {
	last := initProgress(n)
	if last >= 0 && !initOver(n, n.items[last]) {
		return false
	}
	next := last + 1
	return next >= len(n.items) || n.items[next].kind == app
}

// runInit starts the next init container and keeps sidecars running (IN1, IN2, SC1, SC2).
func runInit(n *step) {
	last := initProgress(n)
	if !n.r.Initialized && last >= 0 && n.items[last].kind == initial && initFails(n, n.items[last]) {
		failInit(n)
		return
	}
	for i, it := range n.items {
		if it.kind == sidecar && (n.r.Initialized || i < last) {
			keepContainer(n, it, false)
		}
	}
	if n.r.Initialized {
		return
	}
	if last >= 0 {
		it := n.items[last]
		if it.kind == sidecar || !initOver(n, it) {
			keepContainer(n, it, false)
		}
		if !initOver(n, it) {
			return
		}
	}
	if next := last + 1; next < len(n.items) && (n.items[next].kind == initial || n.items[next].kind == sidecar) {
		keepContainer(n, n.items[next], false)
	}
}

// initFails says that a regular init container failed and is not started again.
func initFails(n *step, it *item) bool {
	end := it.exited()
	return n.fresh(it) && end != nil && end.ExitCode != 0 && !n.policy(it, end.ExitCode)
}

// failInit ends a pod whose init container failed for good (IN2).
func failInit(n *step) {
	n.r.Final = &Final{Phase: corev1.PodFailed}
	finishPod(n)
}

// startApps keeps the regular containers running. A start waits for the one before (SO1, SO3).
func startApps(n *step) {
	hold := false
	for _, it := range n.items {
		hold = hold || it.kind == app && startingUp(n, it)
	}
	for _, it := range n.items {
		if it.kind == app && keepContainer(n, it, hold) {
			hold = true
		}
	}
}

// startingUp says that a container's start or its postStart hook is in progress.
func startingUp(n *step, it *item) bool {
	if a, busy := n.running(it.name); busy && a.Verb == StartContainer {
		return true
	}
	return it.obs != nil && it.obs.State == StateRunning && !hookOver(n, it) && it.c.Kill == nil
}

// keepContainer starts a container that is to run and does not, and watches over one that runs.
// hold delays starts. It says whether it started one.
func keepContainer(n *step, it *item, hold bool) bool {
	if n.live(it.obs) {
		watchContainer(n, it)
		return false
	}
	if a, busy := n.running(it.name); busy {
		if a.Verb == StartContainer {
			n.free(it.name, it.name)
			if it.c.Restart != nil && it.c.Image != it.spec.Image {
				n.cancel(it.name, "")
			}
		}
		return false
	}
	if !startWanted(n, it) || twinRuns(n, it) {
		return false
	}
	restart := it.exited() != nil && it.c.ID != ""
	delayed := restart && isCrash(n, it)
	if !restart && !n.free(it.name, it.name) {
		return false
	}
	if delayed && waitsForBackOff(n, it) || hold {
		return false
	}
	startContainer(n, it, delayed)
	return true
}

// isCrash says that the back-off holds for the next start after a run: it was not ended by order,
// by the end of the node, and is not an init container that runs again in a new sandbox.
func isCrash(n *step, it *item) bool {
	return it.c.Restart == nil && !it.c.Now && (it.kind != initial || n.fresh(it))
}

// twinRuns says that another container of the same name may run still, or that one is there which a
// start that was not recorded has left.
func twinRuns(n *step, it *item) bool {
	for i := range n.o.Containers {
		if o := &n.o.Containers[i]; o.Name == it.name && (n.live(o) || o.State == StateCreated && unknown(it.c, o)) {
			return true
		}
	}
	return false
}

// startWanted says that a container that does not run is to be started.
func startWanted(n *step, it *item) bool {
	end := it.exited()
	switch {
	case it.kind == ephemeral: // EP3
		return it.c.ID == "" && end == nil
	case it.c.Restart != nil || end == nil || it.kind == sidecar: // RS4, RS9, SC2
		return true
	case it.kind == initial && !n.fresh(it): // SB2
		return true
	}
	return n.policy(it, end.ExitCode)
}

// policy says that a container that ended with an exit code is started again (RS1, RS2, RS5, RS6).
func (n *step) policy(it *item, code int32) bool {
	if it.kind == sidecar {
		return true
	}
	if it.kind == ephemeral {
		return false
	}
	for _, rule := range it.spec.RestartPolicyRules {
		if matches(rule, code) {
			return true
		}
	}
	policy := string(n.r.Pod.Spec.RestartPolicy)
	if it.spec.RestartPolicy != nil {
		policy = string(*it.spec.RestartPolicy)
	}
	switch policy {
	case string(corev1.RestartPolicyNever):
		return false
	case string(corev1.RestartPolicyOnFailure):
		return code != 0
	}
	return it.kind != initial || code != 0
}

// matches says that a restart rule holds for an exit code.
func matches(rule corev1.ContainerRestartRule, code int32) bool {
	if rule.ExitCodes == nil || rule.Action != corev1.ContainerRestartRuleActionRestart {
		return false
	}
	in := false
	for _, v := range rule.ExitCodes.Values {
		in = in || v == code
	}
	return in == (rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}

// startContainer asks for a new container. delayed says that the back-off grows.
func startContainer(n *step, it *item, delayed bool) {
	c := it.c
	if delayed {
		nextDelay(n, it)
	}
	before := *c
	if c.Asked && c.ID != "" {
		c.Attempt++
		if c.Gone != nil {
			c.Last = c.Gone
		}
	}
	c.Asked, c.Sandbox, c.Image = true, n.r.Sandbox, it.spec.Image
	c.ID, c.Gone, c.Started, c.Ready = "", nil, "", ""
	c.PostStart, c.PreStop, c.Kill, c.Restart, c.Pull, c.InForce, c.Now = Hook{}, Hook{}, nil, nil, false, nil, false
	switch {
	case *c == before:
	case !before.Asked: // see observeAttempts
		n.dirty()
	default:
		n.save()
	}
	if it.kind == app && !n.r.Initialized {
		n.r.Initialized = true
		n.dirty()
		if len(n.r.Pod.Spec.InitContainers) > 0 { // they would run again
			n.save()
		}
	}
	it.obs = nil
	n.act(Action{Verb: StartContainer, Subject: it.name, Container: it.name, Attempt: c.Attempt, SandboxID: n.sandbox.ID})
}

// watchContainer looks after a container that runs: its hook, its probes, and orders to stop it.
func watchContainer(n *step, it *item) {
	c, o := it.c, it.obs
	if a, busy := n.running("pull/" + it.name); busy && (!c.Pull || a.Image != it.spec.Image) {
		n.cancel(a.Subject, "") // the edit was taken back, or another one came
	}
	if c.Kill == nil || c.Kill.ID != o.ID {
		c.Kill = reasonToKill(n, it)
		if c.Kill == nil {
			runPostStart(n, it)
			return
		}
		n.save()
	}
	stopContainer(n, it, *c.Kill, false)
}

// reasonToKill says why a container that runs is to be killed, nil for nothing.
func reasonToKill(n *step, it *item) *Kill {
	o := it.obs
	grace := n.r.grace()
	k := &Kill{ID: o.ID, At: n.now}
	which, probe := failed(it)
	switch {
	case o.State == StateUnknown: // RS4
		k.Reason, k.Message = "Unknown", "Container is in \"unknown\" state, try killing it before restart"
	case n.sandbox != nil && o.SandboxID != n.sandbox.ID:
		k.Reason, k.Message = "SandboxChanged", "Stopping container "+it.name
	case it.c.Restart != nil:
		if it.c.Pull && !imagePulled(n, it) {
			return nil
		}
		k.Reason, k.Message = it.c.Restart.Reason, it.c.Restart.Message
	case which != "": // PR10, PR23
		k.Reason, k.Message = "Probe", fmt.Sprintf("%s %s failed %s probe", titled(it), it.name, which)
		switch {
		case n.policy(it, unknownExit):
			k.Message += ", will be restarted"
		case it.kind == app && lastOfAll(n, it): // a kubelet ends the pod
			k.Message = "Stopping container " + it.name
		}
		if s := probe.TerminationGracePeriodSeconds; s != nil {
			grace = time.Duration(*s) * time.Second
		}
	default:
		return nil
	}
	k.Deadline = n.now.Add(grace)
	return k
}

// lastOfAll says that no other container of the pod runs or will run.
func lastOfAll(n *step, it *item) bool {
	for _, other := range n.items {
		if other != it && other.kind == app && (other.exited() == nil || startWanted(n, other)) {
			return false
		}
	}
	return true
}

// titled is how a kubelet's messages call a container.
func titled(it *item) string {
	if it.kind == sidecar || it.kind == initial {
		return "Init container"
	}
	return "Container"
}

// imagePulled says that the new image of a container that still runs is there (IM14).
func imagePulled(n *step, it *item) bool {
	subject := "pull/" + it.name
	if n.free(subject, "pull for "+it.name) {
		n.act(Action{Verb: PullImage, Subject: subject, Container: it.name, Image: it.spec.Image})
	}
	return false
}

// runPostStart runs the hook of a container that was just started (HK2): at least once, and again
// if the agent ended during it (HK12), so that no container counts as started whose hook never
// ended.
func runPostStart(n *step, it *item) {
	c, id := it.c, it.obs.ID
	if it.spec.Lifecycle == nil || it.spec.Lifecycle.PostStart == nil || it.obs.State != StateRunning {
		return
	}
	if a, busy := n.running(it.name); busy && a.Verb == StartContainer {
		return
	}
	if c.PostStart.ID != id {
		c.PostStart = Hook{ID: id}
	}
	subject := "hook/" + it.name
	if _, busy := n.running(subject); busy || c.PostStart.Over {
		return
	}
	n.save()
	c.PostStart.Begun = true
	n.act(Action{Verb: RunPostStart, Subject: subject, Container: it.name, ID: id})
}
