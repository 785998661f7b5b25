package objects

import (
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// defaultContainer is the annotation of a pod that names the container that commands take.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// PickContainer is the container that is named, else that of the annotation, else the first; then
// notes says which one, if there are others.
func PickContainer(p *corev1.Pod, name string, notes io.Writer) (string, error) {
	names := ContainerNames(p)
	if name != "" {
		if !slices.Contains(names, name) {
			return "", fmt.Errorf("container %s is not valid for pod %s out of: %s", name, p.Name, strings.Join(names, ", "))
		}
		return name, nil
	}
	if name := p.Annotations[defaultContainer]; slices.Contains(names, name) {
		return name, nil
	}
	if len(p.Spec.Containers) == 0 {
		return "", fmt.Errorf("pod %q has no containers", p.Name)
	}
	name = p.Spec.Containers[0].Name
	if len(names) > 1 {
		fmt.Fprintf(notes, "Defaulted container %q out of: %s\n", name, strings.Join(described(p), ", "))
	}
	return name, nil
}

// described are the names of a pod's containers, with what is special about them.
func described(p *corev1.Pod) []string {
	var names []string
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range p.Spec.EphemeralContainers {
		names = append(names, c.Name+" (ephem)")
	}
	for _, c := range p.Spec.InitContainers {
		names = append(names, c.Name+" (init)")
	}
	return names
}
