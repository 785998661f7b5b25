package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// About is what an event about a pod, or about one of its containers, happened to.
func About(pod *corev1.Pod, container string) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, FieldPath: fieldPath(pod, container),
	}
}

// fieldPath names a container as events do.
func fieldPath(pod *corev1.Pod, name string) string {
	field := ""
	for _, c := range pod.Spec.InitContainers {
		if c.Name == name {
			field = "initContainers"
		}
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == name {
			field = "containers"
		}
	}
	for _, c := range pod.Spec.EphemeralContainers {
		if c.Name == name {
			field = "ephemeralContainers"
		}
	}
	if field == "" {
		return ""
	}
	return fmt.Sprintf("spec.%s{%s}", field, name)
}
