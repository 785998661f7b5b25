package cycle

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unknownStatus is the reason of a container that disappeared (ST3, ST11), and its exit code.
const (
	unknownStatus = "ContainerStatusUnknown"
	unknownExit   = 137
	goneEnding    = "The container could not be located when the pod was terminated"
	goneRunning   = "The container could not be located when the pod was deleted.  The container used to be Running"
)

// lostExit and lostStatus are those of a container whose end its server did not see, as of all that
// ran when the node went down.
const (
	lostExit   = 255
	lostStatus = "Unknown"
)

// retryStop is the pause after a stop, removal or tear-down that failed or had no effect.
const retryStop = 2 * time.Second

// prepareRecord makes the maps of the record and takes recorded times that lie in the future as now
// (RB6).
func prepareRecord(n *step) {
	l := &n.r.Live
	if l.Running == nil {
		l.Running, l.Failures = map[string]Action{}, map[string]Failure{}
		l.Stopped, l.Told = map[string]time.Time{}, map[string]string{}
	}
	for _, it := range items(n.r) {
		n.r.container(it.name)
	}
	for _, d := range []*Deletion{n.r.Deletion, n.r.Ended, n.r.Stopping} {
		if d != nil && d.At.After(n.now) {
			d.At, d.Deadline = n.now, n.now.Add(d.Grace)
			n.save()
		}
	}
	for _, c := range n.r.Containers {
		if k := c.Kill; k != nil && k.At.After(n.now) {
			k.At, k.Deadline = n.now, n.now.Add(k.Deadline.Sub(k.At))
			n.save()
		}
		if c.BackOff.Since.After(n.now) {
			c.BackOff.Since = n.now
			n.dirty()
		}
		if c.BackOff.Ended.After(n.now) {
			c.BackOff.Ended = n.now
			n.dirty()
		}
	}
	for subject, f := range l.Failures {
		if f.Since.After(n.now) { // the clock was set back
			f.Since, f.Retry = n.now, f.Retry.Add(n.now.Sub(f.Since))
			l.Failures[subject] = f
		}
	}
	if from := n.r.activeFrom(); from.After(n.now) {
		n.r.DeadlineFrom = n.now
		n.save()
	}
}

// activeFrom is when activeDeadlineSeconds counts from.
func (r *Record) activeFrom() time.Time {
	if !r.DeadlineFrom.IsZero() {
		return r.DeadlineFrom
	}
	return r.StartTime
}

// checkBoot handles that the node was started anew since the record was last acted on (RB2, SD7).
func checkBoot(n *step) {
	r := n.r
	if n.o.BootID == "" || r.BootID == n.o.BootID {
		return
	}
	if r.BootID != "" {
		cut := false
		for name, c := range r.Containers {
			c.Now = c.Asked && c.Gone == nil && !endedItself(n, name, c)
			cut = cut || c.Now
			c.Started, c.Ready, c.Kill = "", "", nil
		}
		if !r.Done && r.Final == nil {
			r.Stopping = nil
		}
		r.Resume()
		endNever(n, cut)
	}
	r.BootID = n.o.BootID
	n.save()
}

// endedItself says that the server knows how the present attempt of a container ended: the record
// may be older, for the end of a container is not written at once.
func endedItself(n *step, name string, c *Container) bool {
	for i := range n.o.Containers {
		if o := &n.o.Containers[i]; o.Name == name && o.Attempt == c.Attempt {
			return o.State == StateExited && (o.ExitCode != lostExit || o.Reason != lostStatus)
		}
	}
	return false
}

// endNever ends a pod with policy Never whose sandbox is lost and whose containers ran (SB3, RB3).
// cut says that the loss of the node cut them off.
func endNever(n *step, cut bool) bool {
	r := n.r
	if r.Final != nil || r.Done || r.Deletion != nil || mayRestart(n) || !containersRan(n) {
		return false
	}
	finishPod(n)
	if cut {
		r.Disruption = &Reason{terminationByAgent, "The node was started anew while the pod ran."}
	}
	return true
}

// mayRestart says that the pod or one of its regular containers is restarted after a failure, or
// that one is to be restarted by order.
func mayRestart(n *step) bool {
	if n.r.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return true
	}
	for _, it := range items(n.r) {
		own := it.spec.RestartPolicy
		if it.kind == app && (own != nil && *own != corev1.ContainerRestartPolicyNever ||
			len(it.spec.RestartPolicyRules) > 0 || it.c.Restart != nil) {
			return true
		}
	}
	return false
}

// containersRan says that a container of the pod was made once.
func containersRan(n *step) bool {
	for _, c := range n.r.Containers {
		if c.ID != "" || c.Gone != nil || c.Last != nil {
			return true
		}
	}
	return len(n.o.Containers) > 0
}

// observeAll joins what the CRI has with the record.
func observeAll(n *step) {
	forgetRemoved(n)
	n.items = items(n.r)
	for _, it := range n.items {
		observeContainer(n, it)
	}
}

// observeAttempts takes over containers that the record does not know. The first attempt is not
// written before it is made; others are written before they are started. So one that was only
// created was not counted: it is removed, and made again.
func observeAttempts(n *step) {
	for i := range n.o.Containers {
		o := &n.o.Containers[i]
		if c := n.r.Containers[o.Name]; c != nil && unknown(c, o) && o.State != StateCreated {
			c.Asked, c.Attempt, c.ID, c.Gone = true, o.Attempt, "", nil
			n.save()
		}
	}
}

// unknown says that a container is of an attempt that is not on record.
func unknown(c *Container, o *Observation) bool { return !c.Asked || o.Attempt > c.Attempt }

// forgetRemoved drops what Live has on containers and sandboxes that are removed.
func forgetRemoved(n *step) {
	l := &n.r.Live
	if len(l.Stopped) == 0 && len(l.Failures) == 0 {
		return
	}
	here := map[string]bool{}
	for i := range n.o.Sandboxes {
		here[n.o.Sandboxes[i].ID] = true
	}
	for i := range n.o.Containers {
		here[n.o.Containers[i].ID] = true
	}
	for id := range l.Stopped {
		if !here[id] {
			delete(l.Stopped, id)
		}
	}
	for key := range l.Failures {
		if verb, id, ok := strings.Cut(key, "/"); ok && (verb == "stop" || verb == "remove") && !here[id] {
			delete(l.Failures, key)
		}
	}
}

// observeSandboxes takes over attempts that the record does not know.
func observeSandboxes(n *step) {
	for i := range n.o.Sandboxes {
		s := &n.o.Sandboxes[i]
		if n.r.Sandboxes == 0 || s.Attempt > n.r.Sandbox {
			n.r.Sandbox, n.r.SandboxID = s.Attempt, ""
			n.r.Sandboxes = max(n.r.Sandboxes+1, s.Attempt+1)
			n.save()
		}
		if s.Attempt == n.r.Sandbox && n.r.SandboxID != s.ID {
			n.r.SandboxID = s.ID
			n.dirty()
		}
	}
}

// observeContainer finds the present attempt of one container and how it ended.
func observeContainer(n *step, it *item) {
	c := it.c
	for i := range n.o.Containers {
		if o := &n.o.Containers[i]; o.Name == it.name && c.Asked && o.Attempt == c.Attempt {
			it.obs = o
		}
	}
	o := it.obs
	if o == nil {
		if _, busy := n.running(it.name); c.ID != "" && c.Gone == nil && !busy { // ST11
			message := goneRunning
			if n.ending() {
				message = goneEnding
			}
			c.Gone = &corev1.ContainerStateTerminated{ExitCode: unknownExit, Reason: unknownStatus, Message: message,
				FinishedAt: seconds(n.now), ContainerID: n.s.Runtime + "://" + c.ID}
			n.dirty()
		}
		return
	}
	if c.ID != o.ID || c.ImageRef != o.Image || c.ImageID != o.ImageID {
		if c.ID == "" {
			noteSandbox(n, c, o)
		}
		c.ID, c.ImageRef, c.ImageID = o.ID, o.Image, o.ImageID
		n.dirty()
	}
	if f, ok := n.r.Live.Failures[it.name]; ok && f.Reason.Reason == "" {
		delete(n.r.Live.Failures, it.name)
	}
	if o.State == StateExited && (c.Gone == nil || c.Gone.Reason == unknownStatus) {
		c.Gone = termination(o, n.s.Runtime)
		n.dirty()
	}
	updateReady(n, it)
}

// noteSandbox notes the sandbox of a container that the record does not know.
func noteSandbox(n *step, c *Container, o *Observation) {
	for i := range n.o.Sandboxes {
		if s := &n.o.Sandboxes[i]; s.ID == o.SandboxID {
			c.Sandbox = s.Attempt
		}
	}
}

// termination is the end of a container as a status has it.
func termination(o *Observation, prefix string) *corev1.ContainerStateTerminated {
	reason, message := o.Reason, o.Message
	if reason == "" {
		reason = "Error"
		if o.ExitCode == 0 {
			reason = "Completed"
		}
	}
	if o.Termination != "" {
		if message != "" {
			message += ": "
		}
		message += o.Termination
	}
	return &corev1.ContainerStateTerminated{ExitCode: o.ExitCode, Reason: reason, Message: message,
		StartedAt: seconds(o.Started), FinishedAt: seconds(o.Finished), ContainerID: prefix + "://" + o.ID}
}

// seconds is a time as JSON keeps it.
func seconds(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}
