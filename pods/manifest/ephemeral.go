package manifest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/manifest/fields"
	"github.com/sunaba-project/sunaba/pods/manifest/validation"
)

// CheckEphemeral returns a debug container with its defaults, as it may be added to a Pod that
// Parse returned (EP1, EP2). Neither is changed.
//
// # Errors
//
// ErrInvalidArgument; the text has the path of each bad field, which starts with
// "spec.ephemeralContainers[N]".
func CheckEphemeral(pod *corev1.Pod, debug *corev1.EphemeralContainer) (*corev1.EphemeralContainer, error) {
	out := debug.DeepCopy()
	c := Container{
		Container: (*corev1.Container)(&out.EphemeralContainerCommon),
		Path:      fmt.Sprintf("spec.ephemeralContainers[%d]", len(pod.Spec.EphemeralContainers)),
		Index:     len(pod.Spec.EphemeralContainers),
	}
	var bad fields.Problems
	fields.AllLaws().Judge(&bad, c.Path, out)
	defaultContainer(c.Container, false)
	set(&c.ImagePullPolicy, pullPolicy(c.Image))
	validation.Ephemeral(&bad, pod, c, out.TargetContainerName)
	if err := bad.Err(); err != nil {
		return nil, fmt.Errorf("check debug container %s: %w", fields.Quote(c.Name), err)
	}
	return out, nil
}
