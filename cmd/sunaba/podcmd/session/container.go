package session

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// statusOf is the status of a pod's container.
func statusOf(p *corev1.Pod, container string) (corev1.ContainerStatus, error) {
	all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses)
	at := slices.IndexFunc(all, func(s corev1.ContainerStatus) bool { return s.Name == container })
	if at < 0 {
		return corev1.ContainerStatus{}, fmt.Errorf("container %q in pod %q is not available", container, p.Name)
	}
	return all[at], nil
}

// containerOf is a container of a pod as it was asked for, of any kind.
func containerOf(p *corev1.Pod, name string) corev1.Container {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if c.Name == name {
			return c
		}
	}
	for _, c := range p.Spec.EphemeralContainers {
		if c.Name == name {
			return corev1.Container(c.EphemeralContainerCommon)
		}
	}
	return corev1.Container{Name: name}
}

// loggedContainer is the id of the container whose log is wanted: the present one or the last one
// that ran, or with previous the one before. The rules and texts are a kubelet's.
func loggedContainer(p *corev1.Pod, container string, previous bool) (string, error) {
	s, err := statusOf(p, container)
	if err != nil {
		return "", err
	}
	last := ""
	if t := s.LastTerminationState.Terminated; t != nil {
		last = t.ContainerID
	}
	id := ""
	switch state := s.State; {
	case previous:
		if id = last; id == "" {
			return "", noPrevious(p, container)
		}
	case state.Running != nil:
		id = s.ContainerID
	case state.Terminated != nil && state.Terminated.ContainerID != "":
		id = state.Terminated.ContainerID
	case state.Terminated != nil || s.LastTerminationState.Terminated != nil:
		if id = last; id == "" {
			return "", fmt.Errorf("container %q in pod %q is terminated", container, p.Name)
		}
	case state.Waiting != nil:
		return "", fmt.Errorf("container %q in pod %q is waiting to start: %s", container, p.Name, waitingText(state.Waiting.Reason))
	default:
		return "", fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", container, p.Name)
	}
	return bareID(id), nil
}

func noPrevious(p *corev1.Pod, container string) error {
	return fmt.Errorf("previous terminated container %q in pod %q not found", container, p.Name)
}

func waitingText(reason string) string {
	switch reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	}
	return reason
}

// bareID is a container's id without the runtime's name before it.
func bareID(id string) string {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		return bare
	}
	return id
}
