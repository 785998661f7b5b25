package translate

import (
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/runtimeclass"
)

// maxFileName is the longest name of a file in Linux, in bytes.
const maxFileName = 255

// Sandbox is the configuration of the pod's sandbox. Notes are worth an event each. The cgroup
// parent is left empty: the pod gets a cgroup of the server's own, with the limits that are in
// linux.resources and linux.overhead.
//
// # Errors
//
// ErrInvalidArgument for a pod that cannot be translated, with the field; ErrFailedPrecondition
// where the node lacks something.
func Sandbox(in Input) (*runtime.PodSandboxConfig, []Note, error) {
	pod := in.Pod
	logs, err := LogDirectory(in.LogDirectory, pod)
	if err != nil {
		return nil, nil, err
	}
	dns, notes, err := dnsConfig(in)
	if err != nil {
		return nil, nil, err
	}
	security, err := sandboxSecurity(in)
	if err != nil {
		return nil, nil, err
	}
	config := &runtime.PodSandboxConfig{
		Metadata: &runtime.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: in.Attempt,
		},
		LogDirectory: logs,
		DnsConfig:    dns,
		Labels:       sandboxLabels(pod),
		Annotations:  sandboxAnnotations(in),
		Linux: &runtime.LinuxPodSandboxConfig{
			SecurityContext: security,
			Sysctls:         sysctls(pod),
			Overhead:        overheadResources(pod.Spec.Overhead),
			Resources:       SandboxResources(in),
		},
	}
	if !pod.Spec.HostNetwork {
		if config.Hostname, err = Hostname(pod, in.Node); err != nil {
			return nil, nil, err
		}
		if config.PortMappings, err = portMappings(pod); err != nil {
			return nil, nil, err
		}
	}
	return config, notes, nil
}

// LogDirectory is the folder of a pod's logs below that of all pods.
//
// # Errors
//
// ErrInvalidArgument for a pod whose names cannot be the name of a folder.
func LogDirectory(root string, pod *corev1.Pod) (string, error) {
	for _, part := range []struct{ field, value string }{
		{"metadata.namespace", pod.Namespace}, {"metadata.name", pod.Name}, {"metadata.uid", string(pod.UID)},
	} {
		if part.value == "" || strings.ContainsAny(part.value, "/\x00") {
			return "", invalid(part.field, "%.80q cannot be part of the name of a log directory", part.value)
		}
	}
	name := pod.Namespace + "_" + pod.Name + "_" + string(pod.UID)
	if len(name) > maxFileName {
		return "", invalid("metadata.name", "the log directory NAMESPACE_NAME_UID would have a name of %d bytes, which is more than %d", len(name), maxFileName)
	}
	return filepath.Join(root, name), nil
}

// LogPath is the log of one attempt of a container below the pod's log directory.
func LogPath(container string, attempt uint32) string {
	return filepath.Join(container, fmt.Sprintf("%d.log", attempt))
}

// portMappings are the ports of containers and sidecars. A kubelet leaves out those of sidecars.
func portMappings(pod *corev1.Pod) ([]*runtime.PortMapping, error) {
	var list []*runtime.PortMapping
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if !runtimeclass.IsSidecar(c) {
			continue
		}
		own, err := containerPorts(fmt.Sprintf("spec.initContainers[%d]", i), c)
		if err != nil {
			return nil, err
		}
		list = append(list, own...)
	}
	for i := range pod.Spec.Containers {
		own, err := containerPorts(fmt.Sprintf("spec.containers[%d]", i), &pod.Spec.Containers[i])
		if err != nil {
			return nil, err
		}
		list = append(list, own...)
	}
	return list, nil
}

// containerPorts leaves out ports that are given twice.
func containerPorts(at string, c *corev1.Container) ([]*runtime.PortMapping, error) {
	type port struct {
		protocol        corev1.Protocol
		container, host int32
		ip              string
	}
	seen := map[port]bool{}
	var list []*runtime.PortMapping
	for i, p := range c.Ports {
		key := port{p.Protocol, p.ContainerPort, p.HostPort, p.HostIP}
		if seen[key] {
			continue
		}
		seen[key] = true
		protocol, ok := runtime.Protocol_value[string(p.Protocol)]
		if !ok {
			return nil, invalid(fmt.Sprintf("%s.ports[%d].protocol", at, i), "%q is not known", p.Protocol)
		}
		list = append(list, &runtime.PortMapping{
			Protocol: runtime.Protocol(protocol), ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
		})
	}
	return list, nil
}
