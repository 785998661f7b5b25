package pressure

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Limited says whether a pod has limits of the disk that must be watched: volumes if an emptyDir on
// the disk has a sizeLimit, storage if the pod or a container has a limit of ephemeral-storage.
func Limited(pod *corev1.Pod) (volumes, storage bool) {
	for i := range pod.Spec.Volumes {
		volumes = volumes || HasSizeLimit(&pod.Spec.Volumes[i])
	}
	limits := runtimeclass.EffectiveLimits(pod, nil)
	_, storage = limits[corev1.ResourceEphemeralStorage]
	return volumes, storage
}

// HasSizeLimit says whether a volume is an emptyDir on the disk whose size is limited. Those in
// memory have a limit of their file system.
func HasSizeLimit(v *corev1.Volume) bool {
	e := v.EmptyDir
	return e != nil && e.Medium == corev1.StorageMediumDefault && e.SizeLimit != nil && e.SizeLimit.Sign() > 0
}

// OverLimit is the message of a pod that takes more of the disk than it may, "" otherwise (VO5,
// RE13). The order is a kubelet's: its emptyDirs, all of it, its containers. apart says that images
// and layers have a file system of their own: a layer does not count to its container's limit then.
func OverLimit(pod *corev1.Pod, use Use, apart bool) string {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if room, measured := use.Volumes[v.Name]; measured && HasSizeLimit(v) && v.EmptyDir.SizeLimit.CmpInt64(room.Bytes) < 0 {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit.String())
		}
	}
	limits := runtimeclass.EffectiveLimits(pod, pod.Spec.Overhead)
	if limit, found := limits[corev1.ResourceEphemeralStorage]; found && limit.CmpInt64(use.disk(true, true).Bytes) < 0 {
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		limit := c.Resources.Limits.StorageEphemeral()
		if limit.IsZero() {
			continue
		}
		for _, u := range use.Containers {
			taken := u.Logs.Bytes
			if !apart {
				taken += u.Layer.Bytes
			}
			if u.Name == c.Name && limit.CmpInt64(taken) < 0 {
				return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())
			}
		}
	}
	return ""
}

// disk is the room that a pod takes: of its containers' layers, and of logs and volumes.
func (u *Use) disk(layers, others bool) Room {
	var room Room
	for _, c := range u.Containers {
		if layers {
			room.add(c.Layer)
		}
		if others {
			room.add(c.Logs)
		}
	}
	if others {
		for _, v := range u.Volumes {
			room.add(v)
		}
	}
	return room
}

// logs are what the logs of containers take.
func (u *Use) logs() Room {
	var room Room
	for _, c := range u.Containers {
		room.add(c.Logs)
	}
	return room
}

// bytes is an amount as messages have it.
func bytes(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.BinarySI) }
