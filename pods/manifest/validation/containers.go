package validation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Container is one container of a Pod with the path of its field.
type Container struct {
	*corev1.Container
	// Path is that of the field, as "spec.initContainers[0]".
	Path string
	// Index is that in its list.
	Index int
	// Init is true for those of initContainers, sidecars among them.
	Init bool
}

// Sidecar says that the container is an init container that runs beside the app containers.
func (c Container) Sidecar() bool { return c.Init && runtimeclass.IsSidecar(c.Container) }

// Containers are a Pod's init containers, sidecars among them, and then its app containers, in
// order. They are the Pod's own, not copies.
func Containers(pod *corev1.Pod) []Container {
	all := make([]Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		all = append(all, Container{&pod.Spec.InitContainers[i], fmt.Sprintf("spec.initContainers[%d]", i), i, true})
	}
	for i := range pod.Spec.Containers {
		all = append(all, Container{&pod.Spec.Containers[i], fmt.Sprintf("spec.containers[%d]", i), i, false})
	}
	return all
}

// VolumePath is the path of a Pod's volume.
func VolumePath(i int) string { return fmt.Sprintf("spec.volumes[%d]", i) }
