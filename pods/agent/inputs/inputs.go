// Package inputs finds the ConfigMaps, Secrets and claims that a pod uses. It is pure.
package inputs

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/manifest"
)

// Of returns the objects that a pod uses, by their keys, with the containers that use them.
func Of(pod *corev1.Pod) map[string][]string {
	uses := map[string][]string{}
	use := func(kind, name string, containers ...string) {
		key := manifest.Key{Kind: kind, Namespace: pod.Namespace, Name: name}.String()
		uses[key] = append(uses[key], containers...)
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		use(manifest.KindSecret, s.Name)
	}
	volumes := map[string][]string{}
	for _, c := range manifest.Containers(pod) {
		for _, m := range c.VolumeMounts {
			volumes[m.Name] = append(volumes[m.Name], c.Name)
		}
		environment(c.Container, func(kind, name string) { use(kind, name, c.Name) })
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		sources(v, func(kind, name string) { use(kind, name, volumes[v.Name]...) })
	}
	return uses
}

// environment names the objects of a container's variables.
func environment(c *corev1.Container, use func(kind, name string)) {
	for _, e := range c.EnvFrom {
		if e.ConfigMapRef != nil {
			use(manifest.KindConfigMap, e.ConfigMapRef.Name)
		}
		if e.SecretRef != nil {
			use(manifest.KindSecret, e.SecretRef.Name)
		}
	}
	for _, e := range c.Env {
		switch {
		case e.ValueFrom == nil:
		case e.ValueFrom.ConfigMapKeyRef != nil:
			use(manifest.KindConfigMap, e.ValueFrom.ConfigMapKeyRef.Name)
		case e.ValueFrom.SecretKeyRef != nil:
			use(manifest.KindSecret, e.ValueFrom.SecretKeyRef.Name)
		}
	}
}

// sources names the objects of a volume.
func sources(v *corev1.Volume, use func(kind, name string)) {
	switch {
	case v.ConfigMap != nil:
		use(manifest.KindConfigMap, v.ConfigMap.Name)
	case v.Secret != nil:
		use(manifest.KindSecret, v.Secret.SecretName)
	case v.PersistentVolumeClaim != nil:
		use(manifest.KindClaim, v.PersistentVolumeClaim.ClaimName)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				use(manifest.KindConfigMap, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				use(manifest.KindSecret, s.Secret.Name)
			}
		}
	}
}

// Images are the images that a pod names: of containers and of volumes.
func Images(pod *corev1.Pod) []string {
	var names []string
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			names = append(names, list[i].Image)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Image)
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			names = append(names, image.Reference)
		}
	}
	return names
}

// Changed are the keys of objects whose hash is another one than before, or that were added or removed.
func Changed(before, now map[string]string) map[string]bool {
	changed := map[string]bool{}
	for key, hash := range now {
		if before[key] != hash {
			changed[key] = true
		}
	}
	for key := range before {
		if _, found := now[key]; !found {
			changed[key] = true
		}
	}
	return changed
}
