package podcmd

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PR19 of a guest: its listeners are open before it starts, so a TCP probe says nothing about it.
func TestDescribeNotesEarlyProbes(t *testing.T) {
	tcp := func(port intstr.IntOrString) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port}}}
	}
	number, name := tcp(intstr.FromInt32(8080)), tcp(intstr.FromString("http"))
	http := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)}}}
	elsewhere := tcp(intstr.FromInt32(8080))
	elsewhere.TCPSocket.Host = "192.0.2.1"
	const note = "container app is a guest: its TCP probe passes before the program is ready, use httpGet, grpc or exec"
	guest := `{"runtimeSpec": {"annotations": {"io.sunaba.program": "wasm", "io.sunaba.wasm.listen": "[{\"name\":\"http\",\"port\":8080}]"}}}`
	for _, tt := range []struct {
		what               string
		readiness, startup *corev1.Probe
		info               string
		want               bool
	}{
		{"by number", number, nil, guest, true},
		{"by name", name, nil, guest, true},
		{"two", number, name, guest, true},
		{"no probe", nil, nil, guest, false},
		{"another probe too", number, http, guest, false},
		{"to another host", elsewhere, nil, guest, false},
		{"a port that is not announced", tcp(intstr.FromInt32(9090)), nil, guest, false},
		{"a Linux container", number, nil, strings.Replace(guest, `"wasm"`, `"oci"`, 1), false},
		{"another server", number, nil, "no JSON", false},
	} {
		n := newNode(t)
		p := pod("web", "u2", corev1.ConditionTrue)
		c := &p.Spec.Containers[0]
		c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
		c.ReadinessProbe, c.StartupProbe = tt.readiness, tt.startup
		n.agent.set(p)
		n.container("c-app", "", runtime.ContainerState_CONTAINER_RUNNING)
		n.infos = map[string]string{"c-app": tt.info}
		out, _, err := n.run(t.Context(), "", "describe", "pod", "web")
		if err != nil || strings.Contains(out, note) != tt.want {
			t.Errorf("%s: %v\n%s", tt.what, err, out)
		}
	}
}
