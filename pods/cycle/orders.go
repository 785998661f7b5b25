package cycle

import (
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultGrace is a pod's grace period if it has none.
const defaultGrace = 30 * time.Second

// The texts of a shutdown of the node (SD5).
const (
	terminated         = "Terminated"
	terminatedMessage  = "Pod was terminated in response to imminent node shutdown."
	terminationByAgent = "TerminationByKubelet"
)

// New returns the record of a pod that was not acted on yet. The pod is kept, not copied.
func New(pod *corev1.Pod, handler string, source Source) *Record {
	return &Record{Version: RecordVersion, Pod: pod, Handler: handler, Source: source}
}

// grace is the grace period of the pod.
func (r *Record) grace() time.Duration {
	if s := r.Pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(max(*s, 0)) * time.Second
	}
	return defaultGrace
}

// Delete orders the deletion of the pod with a grace period; a negative one is the pod's own. A
// second order can shorten the time that is left and never lengthens it (TM2).
func (r *Record) Delete(grace time.Duration, now time.Time) {
	if grace < 0 {
		grace = r.grace()
	}
	order := &Deletion{At: now, Grace: grace, Deadline: now.Add(grace)}
	if r.Deletion != nil && !order.Deadline.Before(r.Deletion.Deadline) {
		return
	}
	r.Deletion = order
	at, seconds := metav1.NewTime(order.Deadline.Truncate(time.Second)), int64(grace/time.Second)
	r.Pod.DeletionTimestamp, r.Pod.DeletionGracePeriodSeconds = &at, &seconds
}

// End ends the pod for good: its phase is final at once, its containers are stopped with the grace
// period, a negative one is the pod's own. A pod that is over stays as it is. disruption is the
// reason of DisruptionTarget, nil without.
func (r *Record) End(final Final, grace time.Duration, disruption *Reason, now time.Time) {
	if r.Final != nil {
		return
	}
	if grace < 0 {
		grace = r.grace()
	}
	r.Final, r.Done = &final, true
	r.Ended = &Deletion{At: now, Grace: grace, Deadline: now.Add(grace)}
	r.Interrupted = nil
	if disruption != nil {
		r.Disruption = disruption
	}
}

// Interrupt stops the pod for a shutdown of the node, with its own grace period or the given one if
// that is shorter and not negative (SD3). It is started again after the boot or after Resume,
// except one with policy Never: that has failed (SD5). A pod that is being ended already has no more
// time than that either.
func (r *Record) Interrupt(grace time.Duration, now time.Time) {
	if own := r.grace(); grace < 0 || grace > own {
		grace = own
	}
	order := &Deletion{At: now, Grace: grace, Deadline: now.Add(grace)}
	switch {
	case r.Deletion != nil:
		r.Delete(grace, now)
		return
	case r.Final != nil || r.Done:
		if d := r.Ended; d == nil || order.Deadline.Before(d.Deadline) {
			r.Ended = order
		}
		return
	case r.Interrupted != nil:
		return
	}
	disruption := &Reason{terminationByAgent, terminatedMessage}
	if r.Pod.Spec.RestartPolicy == corev1.RestartPolicyNever {
		r.End(Final{corev1.PodFailed, terminated, terminatedMessage}, grace, disruption, now)
		return
	}
	r.Interrupted = &Reason{terminated, terminatedMessage}
	r.Disruption = disruption
	r.Ended = order
}

// Resume takes back Interrupt (SD8).
func (r *Record) Resume() {
	if r.Interrupted == nil {
		return
	}
	r.Stopping = r.Ended // what was stopped is started in a new sandbox
	r.Interrupted, r.Disruption, r.Ended = nil, nil, nil
}

// Restart stops and starts containers whatever their policy, and clears their back-off (BO8). Names
// are those of regular containers and sidecars; none means all of them. A pod that is over or being
// deleted is an errdefs.ErrFailedPrecondition, a name that cannot be restarted is an
// errdefs.ErrNotFound.
func (r *Record) Restart(names []string, reason Reason) error {
	if r.Final != nil || r.Done || r.Deletion != nil || r.Interrupted != nil {
		return fmt.Errorf("restart pod %q: it is over or being stopped: %w", r.fullName(), errdefs.ErrFailedPrecondition)
	}
	known := map[string]bool{}
	var all []string
	for _, it := range items(r) {
		if it.kind == app || it.kind == sidecar {
			known[it.name] = true
			all = append(all, it.name)
		}
	}
	for _, name := range names {
		if !known[name] {
			return fmt.Errorf("restart container %q of pod %q: no regular container or sidecar has this name: %w",
				name, r.fullName(), errdefs.ErrNotFound)
		}
	}
	if len(names) == 0 {
		names = all
	}
	for _, name := range names {
		delete(r.Live.Failures, name)
		r.restart(r.container(name), reason, false)
	}
	return nil
}

// restart asks for a new start of a container that was started once.
func (r *Record) restart(c *Container, reason Reason, pull bool) {
	c.BackOff = BackOff{}
	if !c.Asked {
		return
	}
	c.Restart, c.Pull = &reason, pull
}

// Edit takes over a new version of the pod in place. A regular container or sidecar with a new
// image is pulled, stopped and started with it, whatever the policy (RS9, SC7, IM14); an init
// container's image takes effect when it next runs. Taken back before its pull ended, it changes
// nothing. Status-like fields of the pod that stands (UID, creation, deletion) are kept. The
// generation is the new pod's.
func (r *Record) Edit(pod *corev1.Pod) {
	before := map[string]string{}
	for _, it := range items(r) {
		before[it.name] = it.spec.Image
	}
	pod.UID, pod.CreationTimestamp = r.Pod.UID, r.Pod.CreationTimestamp
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = r.Pod.DeletionTimestamp, r.Pod.DeletionGracePeriodSeconds
	if len(pod.Spec.EphemeralContainers) == 0 {
		pod.Spec.EphemeralContainers = r.Pod.Spec.EphemeralContainers
	}
	r.Pod = pod
	for _, it := range items(r) {
		c := r.container(it.name)
		c.BackOff = BackOff{} // BO8
		delete(r.Live.Failures, it.name)
		delete(r.Live.Failures, "pull/"+it.name)
		if c.Pull && c.Kill == nil && c.Image == it.spec.Image { // the edit is taken back before it took effect
			c.Restart, c.Pull = nil, false
			continue
		}
		old, ok := before[it.name]
		if !ok || old == it.spec.Image || it.kind == initial || it.kind == ephemeral || r.Final != nil || r.Done {
			continue
		}
		r.restart(c, Reason{"Definition", "Container " + it.name + " definition changed, will be restarted"}, true)
	}
}

// AddEphemeral adds a debug container. A name that is in use is an errdefs.ErrAlreadyExists, a pod
// that is over or being deleted an errdefs.ErrFailedPrecondition.
func (r *Record) AddEphemeral(c corev1.EphemeralContainer) error {
	if r.Final != nil || r.Done || r.Deletion != nil || r.Interrupted != nil {
		return fmt.Errorf("add container %q to pod %q: it is over or being stopped: %w", c.Name, r.fullName(), errdefs.ErrFailedPrecondition)
	}
	for _, it := range items(r) {
		if it.name == c.Name {
			return fmt.Errorf("add container %q to pod %q: %w", c.Name, r.fullName(), errdefs.ErrAlreadyExists)
		}
	}
	r.Pod.Spec.EphemeralContainers = append(r.Pod.Spec.EphemeralContainers, c)
	r.Pod.Generation++
	return nil
}

// fullName is NAMESPACE/NAME.
func (r *Record) fullName() string { return r.Pod.Namespace + "/" + r.Pod.Name }

// container is the record of a container, created if it does not exist.
func (r *Record) container(name string) *Container {
	if r.Containers == nil {
		r.Containers = map[string]*Container{}
	}
	c := r.Containers[name]
	if c == nil {
		c = &Container{}
		r.Containers[name] = c
	}
	return c
}
