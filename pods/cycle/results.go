package cycle

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// takeResults takes in how actions ended.
func takeResults(n *step) {
	l := &n.r.Live
	for _, res := range n.o.Results {
		delete(l.Running, res.Subject)
	}
	for _, res := range n.o.Results {
		if res.Verb == RunPostStart || res.Verb == RunPreStop {
			takeHookResult(n, res)
			continue
		}
		if res.Reason.Reason == "" {
			takeSuccess(n, res)
		} else {
			takeFailure(n, res)
		}
	}
	if n.o.Changed {
		for subject, f := range l.Failures {
			f.Retry = n.now
			l.Failures[subject] = f
		}
	}
}

// isImage says that a container waits for its image for this reason.
func isImage(reason string) bool {
	switch reason {
	case "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError":
		return true
	}
	return ofImage(reason)
}

// failureKey is under what a failure is kept: a failed stop does not stand for a failed start.
func failureKey(res Result) string {
	if res.Verb == StopContainer {
		return "stop/" + res.ID
	}
	return res.Subject
}

// takeSuccess takes in an action that succeeded.
func takeSuccess(n *step, res Result) {
	l := &n.r.Live
	delete(l.Failures, failureKey(res))
	switch res.Verb {
	case StartContainer:
		c := n.r.container(res.Container)
		if c.Attempt == res.Attempt && c.ID == "" {
			if res.ID != "" {
				c.ID = res.ID
				n.dirty()
			} else { // it may take a moment to be seen
				l.Failures[res.Subject] = Failure{Since: n.now, Retry: n.now.Add(time.Second)}
			}
		}
	case RunSandbox:
		for subject, f := range l.Failures { // of containers in the old one
			if subject != "volumes" && !strings.Contains(subject, "/") && !isImage(f.Reason.Reason) {
				delete(l.Failures, subject)
			}
		}
		if n.r.Sandbox == res.Attempt && res.ID != "" {
			n.r.SandboxID = res.ID
			n.dirty()
		} else {
			l.Failures[res.Subject] = Failure{Since: n.now, Retry: n.now.Add(time.Second)}
		}
	case StopContainer, StopSandbox:
		l.Stopped[res.ID] = n.now
	case PullImage:
		if pullWanted(n, res) {
			n.r.container(res.Container).Pull = false
			n.save()
		}
	case TearDown:
		l.TornDown = true
	case SetUpVolumes, RemoveSandbox, RemoveContainer, RunPostStart, RunPreStop:
	}
}

// pullWanted says that a container still waits for the image that was pulled, and no other edit has
// come.
func pullWanted(n *step, res Result) bool {
	for _, it := range items(n.r) {
		if it.name == res.Container {
			return it.c != nil && it.c.Pull && it.spec.Image == res.Image
		}
	}
	return false
}

// takeFailure takes in an action that failed: when it is retried, and its event.
func takeFailure(n *step, res Result) {
	if res.Verb == PullImage && !pullWanted(n, res) || isStart(res.Verb) && res.Cancelled && !n.ending() {
		return
	}
	delay := jitter(string(n.r.Pod.UID), res.Subject, res.At)
	switch {
	case res.Delay > 0:
		delay = res.Delay
	case res.Reason.Reason == "NetworkNotReady" && !n.s.NetworkWatched:
		delay = time.Second
	case res.Verb == StopContainer || res.Verb == StopSandbox || res.Verb == RemoveContainer ||
		res.Verb == RemoveSandbox || res.Verb == TearDown:
		delay = retryStop
	}
	since := res.At
	if since.After(n.now) || since.IsZero() {
		since = n.now
	}
	f := Failure{Reason: res.Reason, Since: since, Retry: since.Add(delay), Delay: res.Delay}
	if res.Wait {
		f.Retry = time.Time{}
	}
	n.r.Live.Failures[failureKey(res)] = f
	if n.ending() && isStart(res.Verb) {
		return // it was cancelled
	}
	text := res.Message
	if text == "" {
		text = res.Reason.Reason
	}
	switch res.Verb {
	case SetUpVolumes:
		n.event(corev1.EventTypeWarning, "FailedMount", "", text)
	case RunSandbox:
		n.event(corev1.EventTypeWarning, "FailedCreatePodSandBox", "", "Failed to create pod sandbox: "+text)
	case StartContainer, PullImage:
		if isImage(res.Reason.Reason) {
			text = res.Reason.Reason
		}
		if res.ID != "" {
			text = strings.ReplaceAll(text, res.ID, res.Container)
		}
		n.event(corev1.EventTypeWarning, "Failed", res.Container, "Error: "+text)
	default:
		n.event(corev1.EventTypeWarning, "FailedKillPod", res.Container, "error killing pod: "+text)
	}
}

// isStart says that an action is one of those that make a pod run.
func isStart(v Verb) bool {
	return v == StartContainer || v == RunSandbox || v == SetUpVolumes || v == PullImage
}

// takeHookResult takes in the end of a hook: of postStart, failing kills the container (HK3); of
// preStop, the stop continues (HK6).
func takeHookResult(n *step, res Result) {
	c := n.r.container(res.Container)
	h := &c.PostStart
	if res.Verb == RunPreStop {
		h = &c.PreStop
	}
	if h.ID != res.ID || h.Over { // of an older container, or out of time
		return
	}
	h.Over = true
	n.save()
	if res.Reason.Reason == "" {
		return
	}
	// What a hook printed is in no event: it may be secret.
	if res.Verb == RunPreStop {
		n.event(corev1.EventTypeWarning, "FailedPreStopHook", res.Container, "PreStopHook failed")
		return
	}
	if c.Kill != nil && c.Kill.ID == res.ID || n.ending() {
		return // cancelled with its container
	}
	n.event(corev1.EventTypeWarning, "FailedPostStartHook", res.Container, "PostStartHook failed")
	c.Kill = &Kill{ID: res.ID, Reason: postStartError, Message: "FailedPostStartHook", At: n.now, Deadline: n.now.Add(n.r.grace())}
	n.r.Live.Failures[res.Container] = Failure{Reason: Reason{postStartError, res.Message}, Since: n.now, Retry: n.now}
}
