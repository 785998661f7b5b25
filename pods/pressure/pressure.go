// Package pressure decides which pods end when the node runs out of memory, disk or processes, or
// when they take more of its disk than they may, with a kubelet's rules and texts. It is pure: what
// is measured and the time are given to it.
package pressure

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is something of the node that is measured.
type Signal int

// The signals, in the order in which they are acted on: memory first, then the disk of images, which
// may be that of pods too.
const (
	Memory Signal = iota
	ImageFS
	ImageInodes
	NodeFS
	NodeInodes
	LogFS // of the pods' logs, where they have a file system of their own
	LogInodes
	PIDs
)

// signals are all, with the resource that messages name and the condition of the node.
var signals = []struct {
	resource  corev1.ResourceName
	condition corev1.NodeConditionType
	format    resource.Format
}{
	Memory:      {corev1.ResourceMemory, corev1.NodeMemoryPressure, resource.BinarySI},
	ImageFS:     {corev1.ResourceEphemeralStorage, corev1.NodeDiskPressure, resource.BinarySI},
	ImageInodes: {"inodes", corev1.NodeDiskPressure, resource.DecimalSI},
	NodeFS:      {corev1.ResourceEphemeralStorage, corev1.NodeDiskPressure, resource.BinarySI},
	NodeInodes:  {"inodes", corev1.NodeDiskPressure, resource.DecimalSI},
	LogFS:       {corev1.ResourceEphemeralStorage, corev1.NodeDiskPressure, resource.BinarySI},
	LogInodes:   {"inodes", corev1.NodeDiskPressure, resource.DecimalSI},
	PIDs:        {"pids", corev1.NodePIDPressure, resource.DecimalSI},
}

// Resource is what the signal is about, as messages name it.
func (s Signal) Resource() corev1.ResourceName { return signals[s].resource }

// Condition is the condition of the node that the signal causes.
func (s Signal) Condition() corev1.NodeConditionType { return signals[s].condition }

// Disk says whether the signal is about a file system.
func (s Signal) Disk() bool { return s.Condition() == corev1.NodeDiskPressure }

// Reading is the total of a resource, and how much of it is free: bytes, inodes or processes.
type Reading struct{ Available, Capacity int64 }

// Readings are what was measured at one time. A signal that failed to be measured is left out.
type Readings map[Signal]Reading

// Room is what files take.
type Room struct{ Bytes, Inodes int64 }

func (r *Room) add(o Room) {
	r.Bytes += o.Bytes
	r.Inodes += o.Inodes
}

// Use is what a pod takes of the node.
type Use struct {
	// Memory is the working set in bytes, Processes how many there are.
	Memory, Processes int64
	// Containers are those that run.
	Containers []ContainerUse
	// Volumes are those on the disk that end with the pod, by name.
	Volumes map[string]Room
}

// ContainerUse is what one container takes.
type ContainerUse struct {
	Name   string
	Memory int64 // working set in bytes
	// Layer is its writable layer, Logs are its logs with the rotated ones.
	Layer, Logs Room
}
