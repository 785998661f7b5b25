package validation

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sunaba-project/sunaba/pods/manifest/fields"
)

// Ephemeral checks a debug container that may be added to a Pod (EP1, EP2): c has its container and
// its path, target is that of targetContainerName.
func Ephemeral(p *fields.Problems, pod *corev1.Pod, c Container, target string) {
	names := map[string]bool{}
	for _, other := range Containers(pod) {
		names[other.Name] = true
	}
	if target != "" && !names[target] {
		p.Value(c.Path+".targetContainerName", target, "is no container of this pod")
	}
	for _, other := range pod.Spec.EphemeralContainers {
		names[other.Name] = true
	}
	if p.Required(c.Path+".name", c.Name) {
		p.Value(c.Path+".name", c.Name, validation.IsDNS1123Label(c.Name)...)
		if names[c.Name] {
			p.Value(c.Path+".name", c.Name, "is the name of another container of this pod too")
		}
	}
	checkImage(p, c.Path+".image", c.Image)
	fields.OneOf(p, c.Path+".imagePullPolicy", c.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	checkEnv(p, pod, c)
	volumes := map[string]*corev1.Volume{}
	for i := range pod.Spec.Volumes {
		volumes[pod.Spec.Volumes[i].Name] = &pod.Spec.Volumes[i]
	}
	checkMounts(p, c, volumes)
	if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.SubPath != "" || m.SubPathExpr != "" }) {
		p.Add(c.Path+".volumeMounts", "must not have subPath or subPathExpr in a debug container")
	}
	checkSecurity(p, pod, c)
}
