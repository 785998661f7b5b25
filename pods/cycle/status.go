package cycle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// The size of termination messages of one container, and of all of a pod together (DL3).
const (
	messageLimit    = 4096
	podMessageLimit = 12 << 10
)

// shownFor is how long the reason of a failed start is shown before that of its back-off.
const shownFor = time.Second

// podStatus is the pod's status, and keeps its conditions on record.
func podStatus(n *step) corev1.PodStatus {
	r := n.r
	st := corev1.PodStatus{ObservedGeneration: r.Pod.Generation, QOSClass: runtimeclass.QOS(r.Pod)}
	if !r.StartTime.IsZero() {
		at := seconds(r.StartTime)
		st.StartTime = &at
		setAddresses(n, &st)
	}
	limit := messageLimit
	if len(n.items) > 0 {
		limit = min(limit, podMessageLimit/len(n.items))
	}
	// A pod that was never accepted has no containers, as with a kubelet.
	rejected := r.Pending != nil || r.Final != nil && r.Sandboxes == 0
	if !rejected || containersRan(n) {
		setResources(inForce(n), &st)
		if requests := runtimeclass.EffectiveRequests(r.Pod, r.Pod.Spec.Overhead); len(requests) > 0 {
			st.AllocatedResources = requests
		}
		for _, it := range n.items {
			cs := containerStatus(n, it, limit)
			switch it.kind {
			case initial, sidecar:
				st.InitContainerStatuses = append(st.InitContainerStatuses, cs)
			case app:
				st.ContainerStatuses = append(st.ContainerStatuses, cs)
			case ephemeral:
				st.EphemeralContainerStatuses = append(st.EphemeralContainerStatuses, cs)
			}
		}
	}
	st.Phase = podPhase(n, &st)
	switch {
	case r.Final != nil:
		st.Reason, st.Message = r.Final.Reason, r.Final.Message
	case r.Interrupted != nil:
		st.Reason, st.Message = r.Interrupted.Reason, r.Interrupted.Message
	}
	st.Conditions = podConditions(n, &st)
	slices.SortStableFunc(st.ContainerStatuses, func(a, b corev1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) }) // as a kubelet (ST9)
	return st
}

// setResources are those of the whole pod, with its overhead; none for a pod without any.
func setResources(pod *corev1.Pod, st *corev1.PodStatus) {
	requests := runtimeclass.EffectiveRequests(pod, pod.Spec.Overhead)
	limits := runtimeclass.EffectiveLimits(pod, pod.Spec.Overhead)
	if len(requests)+len(limits) > 0 {
		st.Resources = &corev1.ResourceRequirements{Requests: requests, Limits: limits}
	}
}

// inForce is the pod with the resources that its containers have, if a resize of them is still to
// be applied (ST8).
func inForce(n *step) *corev1.Pod {
	pod := n.r.Pod
	for _, it := range n.items {
		if r := resourcesInForce(it); r != &it.spec.Resources {
			if pod == n.r.Pod {
				pod = pod.DeepCopy()
			}
			for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
				for i := range list {
					if list[i].Name == it.name {
						list[i].Resources = *r
					}
				}
			}
		}
	}
	return pod
}

// resourcesInForce are those of a container: its own while it runs with others than the pod's.
func resourcesInForce(it *item) *corev1.ResourceRequirements {
	if it.c.InForce != nil && it.obs != nil && it.obs.State == StateRunning && it.exited() == nil {
		return it.c.InForce
	}
	return &it.spec.Resources
}

// setAddresses are the node's and the pod's.
func setAddresses(n *step, st *corev1.PodStatus) {
	for _, ip := range n.s.HostIPs {
		st.HostIPs = append(st.HostIPs, corev1.HostIP{IP: ip})
	}
	ips := n.r.IPs
	if n.r.Pod.Spec.HostNetwork && n.r.Sandboxes > 0 {
		ips = n.s.HostIPs
	}
	for _, ip := range ips {
		st.PodIPs = append(st.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(st.HostIPs) > 0 {
		st.HostIP = st.HostIPs[0].IP
	}
	if len(st.PodIPs) > 0 {
		st.PodIP = st.PodIPs[0].IP
	}
}

// containerStatus is the status of one container.
func containerStatus(n *step, it *item, limit int) corev1.ContainerStatus {
	c := it.c
	cs := corev1.ContainerStatus{Name: it.name, RestartCount: int32(min(c.Attempt, 1<<31-1)), Image: it.spec.Image, ImageID: c.ImageID}
	if c.ImageRef != "" {
		cs.Image = c.ImageRef
	}
	switch {
	case c.ID != "":
		cs.ContainerID = n.s.Runtime + "://" + c.ID
	case c.Last != nil:
		cs.ContainerID = c.Last.ContainerID
	}
	var last *corev1.ContainerStateTerminated
	cs.State, last = containerState(n, it)
	cs.State.Terminated = cut(cs.State.Terminated, limit)
	cs.LastTerminationState.Terminated = cut(last, limit)
	if it.kind != ephemeral {
		started := c.ID != "" && c.Started == c.ID && cs.State.Running != nil
		cs.Started = &started
		cs.Ready = started && c.Ready == c.ID
		if it.kind == initial {
			cs.Ready = cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 0
		}
		cs.Resources = resourcesInForce(it).DeepCopy()
		cs.AllocatedResources = it.spec.Resources.Requests.DeepCopy()
	} else {
		cs.Ready = false
	}
	cs.VolumeMounts = mountStatuses(n, it)
	if it.obs != nil {
		cs.User, cs.StopSignal = it.obs.User.DeepCopy(), it.obs.StopSignal
	}
	return cs
}

// mountStatuses are the volume mounts as a status has them.
func mountStatuses(n *step, it *item) []corev1.VolumeMountStatus {
	var list []corev1.VolumeMountStatus
	for _, m := range it.spec.VolumeMounts {
		ms := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if m.RecursiveReadOnly != nil && (*m.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled ||
				*m.RecursiveReadOnly == corev1.RecursiveReadOnlyIfPossible && n.s.RecursiveReadOnly) {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			ms.RecursiveReadOnly = &mode
		}
		list = append(list, ms)
	}
	return list
}

// containerState is a container's state and last termination (ST1, ST4).
func containerState(n *step, it *item) (corev1.ContainerState, *corev1.ContainerStateTerminated) {
	c, o := it.c, it.obs
	end := it.exited()
	switch {
	case o != nil && o.State == StateRunning && end == nil:
		if f := n.r.Live.Failures[it.name]; f.Reason.Reason == postStartError && !n.ending() {
			return waiting(f.Reason.Reason, f.Message), c.Last
		}
		if !hookOver(n, it) && c.Started != o.ID && !n.ending() { // HK2
			break
		}
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: seconds(o.Started)}}, c.Last
	case end != nil:
		if w := waitingState(n, it); w != nil {
			return corev1.ContainerState{Waiting: w}, end
		}
		return corev1.ContainerState{Terminated: end}, c.Last
	}
	if w := waitingState(n, it); w != nil {
		return corev1.ContainerState{Waiting: w}, c.Last
	}
	if c.ID == "" && c.Last != nil && it.kind != initial { // the old one is shown until the new one is there
		return corev1.ContainerState{Terminated: c.Last}, c.Last
	}
	if n.r.Final != nil && it.kind == app && n.r.Initialized {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: unknownExit, Reason: unknownStatus, Message: goneEnding}}, c.Last
	}
	if len(n.r.Pod.Spec.InitContainers) > 0 {
		return waiting("PodInitializing", ""), c.Last
	}
	return waiting("ContainerCreating", ""), c.Last
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// waitingState is why a container that is to be started is not: the failure of its last start, then
// the back-off (ST2, IM4). Nil if it waits for nothing of its own.
func waitingState(n *step, it *item) *corev1.ContainerStateWaiting {
	if n.ending() || !startWanted(n, it) {
		return nil
	}
	loop := crashLoop(n, it)
	f, ok := n.r.Live.Failures[it.name]
	if !ok || f.Reason.Reason == "" {
		return loop
	}
	shown := &corev1.ContainerStateWaiting{Reason: f.Reason.Reason, Message: f.Message}
	backed := f.Delay > 0 && ofImage(f.Reason.Reason)
	if (loop != nil || backed) && n.now.Before(f.Since.Add(shownFor)) {
		n.wake(f.Since.Add(shownFor), "")
		return shown
	}
	if loop != nil {
		return loop
	}
	if !backed {
		return shown
	}
	text := fmt.Sprintf("Back-off pulling image %q", it.spec.Image)
	n.once("pull/"+it.name, f.Since.String(), corev1.EventTypeNormal, "BackOff", it.name, text)
	n.once("backoff/"+it.name, f.Since.String(), corev1.EventTypeWarning, "Failed", it.name, "Error: ImagePullBackOff")
	return &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: text + ": " + f.Reason.Reason + ": " + f.Message}
}

// ofImage says that a reason is of a pull that is retried after a growing delay.
func ofImage(reason string) bool {
	return reason == "ErrImagePull" || reason == "RegistryUnavailable" || reason == "SignatureValidationFailed"
}

// cut shortens the message of a termination at the end of a character.
func cut(t *corev1.ContainerStateTerminated, limit int) *corev1.ContainerStateTerminated {
	if t == nil {
		return nil
	}
	t = t.DeepCopy()
	if len(t.Message) > limit {
		end := limit
		for end > 0 && !utf8.RuneStart(t.Message[end]) {
			end--
		}
		t.Message = t.Message[:end]
	}
	t.Message = strings.ToValidUTF8(t.Message, "\uFFFD")
	return t
}
