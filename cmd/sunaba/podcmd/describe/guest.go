package describe

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// TCPOnly are the ports that the probes of a pod's containers connect to, by container: of those
// that have TCP probes and no others.
func TCPOnly(p *corev1.Pod) map[string][]int {
	found := map[string][]int{}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		var ports []int
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if probe == nil {
				continue
			}
			number := tcpPort(probe, c.Ports)
			if number == 0 {
				ports = nil
				break
			}
			ports = append(ports, number)
		}
		if len(ports) > 0 {
			found[c.Name] = ports
		}
	}
	return found
}

// tcpPort is the port of the pod itself that a TCP probe connects to, 0 for every other probe.
func tcpPort(probe *corev1.Probe, ports []corev1.ContainerPort) int {
	if probe.TCPSocket == nil || probe.TCPSocket.Host != "" {
		return 0
	}
	number := probe.TCPSocket.Port.IntValue()
	for _, p := range ports {
		if name := probe.TCPSocket.Port.StrVal; name != "" && p.Name == name {
			number = int(p.ContainerPort)
		}
	}
	return number
}

// EarlyProbe is the note about a guest whose only probes connect to a port that is open before it
// starts.
func EarlyProbe(container string) string {
	return "container " + container + " is a guest: its TCP probe passes before the program is ready, use httpGet, grpc or exec"
}
