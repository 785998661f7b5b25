package translate

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/shim/stdio"
)

// Labels of sandboxes and containers, as a kubelet gives them.
const (
	PodNameLabel       = "io.kubernetes.pod.name"
	PodNamespaceLabel  = "io.kubernetes.pod.namespace"
	PodUIDLabel        = "io.kubernetes.pod.uid"
	ContainerNameLabel = "io.kubernetes.container.name"
)

// Annotations of containers, as a kubelet gives them.
const (
	HashAnnotation                     = "io.kubernetes.container.hash"
	RestartCountAnnotation             = "io.kubernetes.container.restartCount"
	TerminationMessagePathAnnotation   = "io.kubernetes.container.terminationMessagePath"
	TerminationMessagePolicyAnnotation = "io.kubernetes.container.terminationMessagePolicy"
	PreStopAnnotation                  = "io.kubernetes.container.preStopHandler"
	PortsAnnotation                    = "io.kubernetes.container.ports"
	TerminationGraceAnnotation         = "io.kubernetes.pod.terminationGracePeriod"
	DeletionGraceAnnotation            = "io.kubernetes.pod.deletionGracePeriod"
)

// MarkAnnotation is on the sandboxes and containers of the agent, RunAnnotation on those of `sunaba
// run`. Each touches no others.
const (
	MarkAnnotation = "io.sunaba.agent"
	RunAnnotation  = "io.sunaba.run"
)

// identity are the labels by which a pod's sandboxes and containers are found.
func identity(pod *corev1.Pod) map[string]string {
	return map[string]string{PodNameLabel: pod.Name, PodNamespaceLabel: pod.Namespace, PodUIDLabel: string(pod.UID)}
}

// sandboxLabels are the pod's own and its identity, which a manifest cannot override.
func sandboxLabels(pod *corev1.Pod) map[string]string {
	labels := identity(pod)
	for k, v := range pod.Labels {
		if _, taken := labels[k]; !taken {
			labels[k] = v
		}
	}
	return labels
}

// sandboxAnnotations are the pod's own. A manifest cannot set or forge a mark.
func sandboxAnnotations(in Input) map[string]string {
	annotations := maps.Clone(in.Pod.Annotations)
	delete(annotations, MarkAnnotation)
	delete(annotations, RunAnnotation)
	return marked(in, annotations)
}

func marked(in Input, annotations map[string]string) map[string]string {
	if in.Mark == "" {
		return annotations
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[in.markedBy()] = in.Mark
	return annotations
}

func (in Input) markedBy() string {
	if in.Run {
		return RunAnnotation
	}
	return MarkAnnotation
}

// Marked says whether annotations are those of a sandbox or container with the input's mark.
func (in Input) Marked(annotations map[string]string) bool {
	return annotations[in.markedBy()] == in.Mark
}

func containerLabels(pod *corev1.Pod, c *corev1.Container) map[string]string {
	labels := identity(pod)
	labels[ContainerNameLabel] = c.Name
	return labels
}

func containerAnnotations(in Input, c *corev1.Container, o ContainerInput) (map[string]string, error) {
	annotations := map[string]string{
		HashAnnotation:                     Definition(c),
		RestartCountAnnotation:             strconv.FormatUint(uint64(o.Attempt), 10),
		TerminationMessagePathAnnotation:   c.TerminationMessagePath,
		TerminationMessagePolicyAnnotation: string(c.TerminationMessagePolicy),
	}
	if s := in.Pod.DeletionGracePeriodSeconds; s != nil {
		annotations[DeletionGraceAnnotation] = strconv.FormatInt(*s, 10)
	}
	if s := in.Pod.Spec.TerminationGracePeriodSeconds; s != nil {
		annotations[TerminationGraceAnnotation] = strconv.FormatInt(*s, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		data, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, fmt.Errorf("encode preStop hook of container %q: %w", c.Name, err)
		}
		annotations[PreStopAnnotation] = string(data)
	}
	if len(c.Ports) > 0 {
		data, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, fmt.Errorf("encode ports of container %q: %w", c.Name, err)
		}
		annotations[PortsAnnotation] = string(data)
	}
	if o.Ephemeral && c.StdinOnce { // who asked for it attaches to it, and is to see all (EP6)
		annotations[stdio.AwaitAnnotation] = "true"
	}
	return marked(in, annotations), nil
}

// Definition is the hash of what a running container cannot change: its name and image. It is the
// kubelet's to the bit, which hashes the printed bytes of a JSON object.
func Definition(c *corev1.Container) string {
	data, err := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	if err != nil {
		data = nil // strings can always be encoded
	}
	hash := fnv.New32a()
	fmt.Fprintf(hash, "([]uint8)%d", data)
	return strconv.FormatUint(uint64(hash.Sum32()), 16)
}
