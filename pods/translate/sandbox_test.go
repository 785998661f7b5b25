package translate

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkText wants an error of the class and with exactly this text, or none for "".
func checkText(t *testing.T, err error, want string, class func(error) bool) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error %q, want none", err)
	case want != "" && err == nil:
		t.Errorf("no error, want %q", want)
	case want != "" && err.Error() != want:
		t.Errorf("error %q, want %q", err, want)
	case want != "" && !class(err):
		t.Errorf("error %q is of another class", err)
	}
}

// LG1
func TestLogNames(t *testing.T) {
	if got := LogPath("app", 3); got != "app/3.log" {
		t.Errorf("log path %q", got)
	}
	for _, tt := range []struct {
		name, uid, want, err string
	}{
		{"web", "u-1", "/logs/default_web_u-1", ""},
		{"web", "", "", `metadata.uid: "" cannot be part of the name of a log directory: invalid argument`},
		{"web", "../../etc", "", `metadata.uid: "../../etc" cannot be part of the name of a log directory: invalid argument`},
		{"a\x00b", "u-1", "", `metadata.name: "a\x00b" cannot be part of the name of a log directory: invalid argument`},
		{strings.Repeat("n", 243), "u-1", "/logs/default_" + strings.Repeat("n", 243) + "_u-1", ""},
		{strings.Repeat("n", 244), "u-1", "", "metadata.name: the log directory NAMESPACE_NAME_UID would have a name of 256 bytes, which is more than 255: invalid argument"},
	} {
		pod := specPod(t, "", "")
		pod.Name, pod.UID = tt.name, types.UID(tt.uid)
		got, err := LogDirectory("/logs", pod)
		checkText(t, err, tt.err, errdefs.IsInvalidArgument)
		if got != tt.want {
			t.Errorf("%q: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// NW6, and H.1: host ports of sidecars are mapped, those of other init containers are not.
func TestPortMappings(t *testing.T) {
	pod := specPod(t, "initContainers:\n- {name: i, image: i, ports: [{containerPort: 1, protocol: TCP}]}\n"+
		"- {name: s, image: s, restartPolicy: Always, ports: [{containerPort: 2, hostPort: 20, protocol: SCTP}]}",
		"ports: [{containerPort: 3, protocol: TCP}, {containerPort: 3, protocol: TCP}, {containerPort: 3, protocol: UDP}, {name: x, containerPort: 3, hostPort: 30, hostIP: '::1', protocol: TCP}]")
	config, _, err := Sandbox(input(pod))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range config.GetPortMappings() {
		got = append(got, strings.Join(strings.Fields(p.String()), " "))
	}
	want := []*runtime.PortMapping{
		{Protocol: runtime.Protocol_SCTP, ContainerPort: 2, HostPort: 20},
		{Protocol: runtime.Protocol_TCP, ContainerPort: 3},
		{Protocol: runtime.Protocol_UDP, ContainerPort: 3},
		{Protocol: runtime.Protocol_TCP, ContainerPort: 3, HostPort: 30, HostIp: "::1"},
	}
	if len(got) != len(want) {
		t.Fatalf("%d port mappings %q, want %d", len(got), got, len(want))
	}
	for i, w := range want {
		if text := strings.Join(strings.Fields(w.String()), " "); got[i] != text {
			t.Errorf("port mapping %d: %s, want %s", i, got[i], text)
		}
	}
	pod.Spec.HostNetwork = true
	if config, _, err = Sandbox(input(pod)); err != nil || config.GetPortMappings() != nil || config.GetHostname() != "" {
		t.Errorf("in the host's network: %v, %q, %v", config.GetPortMappings(), config.GetHostname(), err)
	}
}

func TestSandboxRefuses(t *testing.T) {
	for _, tt := range []struct{ name, spec, container, want string }{
		{"protocol", "", "ports: [{containerPort: 1, protocol: QUIC}]", `spec.containers[0].ports[0].protocol: "QUIC" is not known: invalid argument`},
		{"no protocol", "", "ports: [{containerPort: 1}]", `spec.containers[0].ports[0].protocol: "" is not known: invalid argument`},
		{"groups policy", "securityContext: {supplementalGroupsPolicy: Some}", "", `spec.securityContext.supplementalGroupsPolicy: "Some" is not known: invalid argument`},
		{"dns policy", "dnsPolicy: Own", "", `spec.dnsPolicy: "Own" is not known: invalid argument`},
		{"dns none", "dnsPolicy: None", "", "spec.dnsConfig.nameservers: dnsPolicy None needs at least one: invalid argument"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Sandbox(input(specPod(t, tt.spec, tt.container)))
			checkText(t, err, tt.want, errdefs.IsInvalidArgument)
		})
	}
}

// NW9, RE6: annotations of a network's bandwidth reach the server, and no pod is put below a cgroup
// of its QoS class.
func TestSandboxOfEveryClass(t *testing.T) {
	for _, resources := range []string{"", "resources: {requests: {cpu: 100m}}", "resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}"} {
		pod := specPod(t, "", resources)
		pod.Annotations = map[string]string{"kubernetes.io/ingress-bandwidth": "10M"}
		config, _, err := Sandbox(input(pod))
		if err != nil || config.GetAnnotations()["kubernetes.io/ingress-bandwidth"] != "10M" || config.GetLinux().GetCgroupParent() != "" {
			t.Errorf("%s: annotations %v, cgroup parent %q, %v", resources, config.GetAnnotations(), config.GetLinux().GetCgroupParent(), err)
		}
	}
}

// NW1, EP4
func TestNamespaces(t *testing.T) {
	const node, pod, own, target = runtime.NamespaceMode_NODE, runtime.NamespaceMode_POD, runtime.NamespaceMode_CONTAINER, runtime.NamespaceMode_TARGET
	for _, tt := range []struct {
		name, spec        string
		target            string
		ephemeral         bool
		network, pid, ipc runtime.NamespaceMode
		containerPID      runtime.NamespaceMode
	}{
		{"default", "", "", false, pod, own, pod, own},
		{"network", "hostNetwork: true", "", false, node, own, pod, own},
		{"pid", "hostPID: true", "", false, pod, node, pod, node},
		{"ipc", "hostIPC: true", "", false, pod, own, node, own},
		{"shared", "shareProcessNamespace: true", "", false, pod, pod, pod, pod},
		{"not shared", "shareProcessNamespace: false", "", false, pod, own, pod, own},
		{"target", "", "c1", true, pod, own, pod, target},
		{"target of a shared namespace", "shareProcessNamespace: true", "c1", true, pod, pod, pod, pod},
		{"target of a container that is none", "", "c1", false, pod, own, pod, own},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(specPod(t, tt.spec, ""))
			sandbox, _, err := Sandbox(in)
			if err != nil {
				t.Fatal(err)
			}
			o := sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions()
			if o.GetNetwork() != tt.network || o.GetPid() != tt.pid || o.GetIpc() != tt.ipc || o.GetUsernsOptions() != nil {
				t.Errorf("sandbox: %v", o)
			}
			config, err := Container(in, &in.Pod.Spec.Containers[0], ContainerInput{Image: &runtime.Image{}, TargetID: tt.target, Ephemeral: tt.ephemeral})
			if err != nil {
				t.Fatal(err)
			}
			c := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
			if c.GetNetwork() != tt.network || c.GetPid() != tt.containerPID || c.GetIpc() != tt.ipc {
				t.Errorf("container: %v", c)
			}
			if id := c.GetTargetId(); (id == tt.target && id != "") != (tt.containerPID == target) {
				t.Errorf("target %q", id)
			}
		})
	}
}

// A manifest can neither forge the agent's mark nor another pod's identity.
func TestMarkAndIdentity(t *testing.T) {
	pod := specPod(t, "", "")
	pod.Annotations = map[string]string{MarkAnnotation: "forged", "a": "b"}
	pod.Labels = map[string]string{PodUIDLabel: "other", PodNamespaceLabel: "other", PodNameLabel: "other", "l": "m"}
	in := input(pod)
	for mark, want := range map[string]string{"": "", "v1": "v1"} {
		in.Mark = mark
		config, _, err := Sandbox(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.GetAnnotations()[MarkAnnotation]; got != want || config.GetAnnotations()["a"] != "b" {
			t.Errorf("mark %q: %v", mark, config.GetAnnotations())
		}
		l := config.GetLabels()
		if l[PodUIDLabel] != "u-1" || l[PodNamespaceLabel] != "default" || l[PodNameLabel] != "web" || l["l"] != "m" {
			t.Errorf("labels %v", l)
		}
	}
	if pod.Annotations[MarkAnnotation] != "forged" || len(pod.Labels) != 4 {
		t.Error("the pod was changed")
	}
}

// BO5: the hash is the kubelet's, whose own test has this value.
func TestDefinition(t *testing.T) {
	c := corev1.Container{Name: "test_container", Image: "foo/image:v1", Args: []string{"x"}}
	if got := Definition(&c); got != "8e45cbd0" {
		t.Errorf("%s, want 8e45cbd0", got)
	}
	before := Definition(&c)
	c.Args, c.Env = nil, []corev1.EnvVar{{Name: "A"}}
	if Definition(&c) != before {
		t.Error("arguments are part of the definition")
	}
	c.Image = "foo/image:v2"
	if Definition(&c) == before {
		t.Error("the image is not part of the definition")
	}
}
