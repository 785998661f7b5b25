package cycle

import (
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// kind is what a container is in its pod.
type kind int

const (
	initial kind = iota // a regular init container
	sidecar             // an init container with restartPolicy Always
	app
	ephemeral
)

// item is one container of the pod's specification with what is known of it.
type item struct {
	name string
	kind kind
	spec *corev1.Container
	c    *Container
	// obs is the present attempt's container in the CRI, nil if it has none.
	obs *Observation
}

// items are the containers of a pod in the order of the specification: init, regular, ephemeral.
func items(r *Record) []*item {
	spec := &r.Pod.Spec
	var list []*item
	add := func(k kind, c *corev1.Container) {
		list = append(list, &item{name: c.Name, kind: k, spec: c, c: r.Containers[c.Name]})
	}
	for i := range spec.InitContainers {
		k := initial
		if runtimeclass.IsSidecar(&spec.InitContainers[i]) {
			k = sidecar
		}
		add(k, &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		add(app, &spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		add(ephemeral, (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return list
}

// step is one call of Next.
type step struct {
	r     *Record
	o     *Observed
	now   time.Time
	s     *Settings
	d     *Decision
	items []*item
	// sandbox is the ready sandbox in which containers run, nil without.
	sandbox *Sandbox
}

func (n *step) save()  { n.d.Save = true }
func (n *step) dirty() { n.d.Dirty = true }

// wake asks for a call at a time.
func (n *step) wake(at time.Time, text string) {
	if n.d.Wake.IsZero() || at.Before(n.d.Wake) {
		n.d.Wake = at
		if text != "" {
			n.d.Waiting = text
		}
	} else if n.d.Waiting == "" {
		n.d.Waiting = text
	}
}

// act gives out an action.
func (n *step) act(a Action) {
	n.d.Actions = append(n.d.Actions, a)
	n.r.Live.Running[a.Subject] = a
}

// running is the action of a subject that is in progress.
func (n *step) running(subject string) (Action, bool) {
	a, ok := n.r.Live.Running[subject]
	return a, ok
}

// cancel asks for the cancellation of a subject's action unless it is of the verb that is to stay.
func (n *step) cancel(subject string, except Verb) {
	if a, ok := n.running(subject); ok && a.Verb != except {
		n.d.Cancel = append(n.d.Cancel, subject)
	}
}

// free says that an action of the subject may start: none is in progress and no failure waits.
func (n *step) free(subject, what string) bool {
	if a, ok := n.running(subject); ok {
		if n.d.Waiting == "" {
			n.d.Waiting = string(a.Verb) + " of " + what
		}
		return false
	}
	return n.due(subject, what)
}

// due says that no failure of the key waits for its retry.
func (n *step) due(key, what string) bool {
	f, ok := n.r.Live.Failures[key]
	if !ok || !f.Retry.IsZero() && !n.now.Before(f.Retry) {
		return true
	}
	text := what
	if f.Reason.Reason != "" {
		text += " (" + f.Reason.Reason + ")"
	}
	if f.Retry.IsZero() {
		if n.d.Waiting == "" {
			n.d.Waiting = "a change that lets " + text + " succeed"
		}
		return false
	}
	n.wake(f.Retry, "retry of "+text)
	return false
}

func (n *step) event(kind, reason, container, message string) {
	n.d.Events = append(n.d.Events, Event{Type: kind, Reason: reason, Message: message, Container: container})
}

// once records an event of a key, once for each thing of which it is told.
func (n *step) once(key, of, kind, reason, container, message string) {
	if n.r.Live.Told[key] == of {
		return
	}
	n.r.Live.Told[key] = of
	n.event(kind, reason, container, message)
}

// ending says that nothing of the pod is started any more.
func (n *step) ending() bool {
	r := n.r
	return r.Deletion != nil || r.Ended != nil || r.Done || r.Final != nil || r.Interrupted != nil
}

// deadline is when the stop of all containers is out of time: the earliest of the orders for it.
func (n *step) deadline() (at time.Time, grace time.Duration) {
	for _, d := range []*Deletion{n.r.Deletion, n.r.Ended, n.r.Stopping} {
		if d != nil && (at.IsZero() || d.Deadline.Before(at)) {
			at, grace = d.Deadline, d.Grace
		}
	}
	if at.IsZero() {
		return n.now.Add(n.r.grace()), n.r.grace()
	}
	return at, grace
}

// live says that a container runs or may run.
func (n *step) live(o *Observation) bool {
	if o == nil {
		return false
	}
	_, stopped := n.r.Live.Stopped[o.ID]
	return o.State == StateRunning || o.State == StateUnknown && !stopped
}

// exited is the last termination of the present attempt, nil while it has none.
func (it *item) exited() *corev1.ContainerStateTerminated { return it.c.Gone }

// fresh says that the present attempt was asked for in the present sandbox.
func (n *step) fresh(it *item) bool {
	return it.c.Asked && it.c.Sandbox == n.r.Sandbox && n.r.Sandboxes > 0
}

// failed says that a probe's result demands that the container is killed.
func failed(it *item) (which string, p *corev1.Probe) {
	o := it.obs
	switch {
	case it.spec.StartupProbe != nil && it.c.Started != o.ID && o.Startup == ProbeFailure:
		return "startup", it.spec.StartupProbe
	case it.spec.LivenessProbe != nil && o.Liveness == ProbeFailure:
		return "liveness", it.spec.LivenessProbe
	}
	return "", nil
}

// jitter spreads the pause before a retry over 10 to 15 s, as a kubelet's (BO9), from what it is
// about, so that the same call gives the same answer.
func jitter(uid, subject string, at time.Time) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(uid + "\x00" + subject + "\x00" + at.UTC().Format(time.RFC3339Nano)))
	return 10*time.Second + time.Duration(h.Sum64()%5000)*time.Millisecond
}
