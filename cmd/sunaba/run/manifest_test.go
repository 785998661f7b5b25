package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
)

const podHead = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"

// spec is a pod with one container and further lines of the spec, of the pod and of the container.
func spec(pod, container string) string {
	indent := func(s, by string) string {
		if s == "" {
			return ""
		}
		return by + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n"+by) + "\n"
	}
	return podHead + "spec:\n" + indent(pod, "  ") + "  containers:\n  - name: c\n    image: example.org/c:1\n" + indent(container, "    ")
}

func TestParseManifest(t *testing.T) {
	const class = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: wasm}\nhandler: wasm\n"
	for _, tt := range []struct{ name, in, want string }{
		{"one pod", spec("", ""), ""},
		{"pod and class", spec("", "") + "---\n" + class, ""},
		{"class and pod", class + "---\n" + spec("", ""), ""},
		{"no pod", class, "f.yaml: no Pod in it"},
		{"empty", "", "no Pod in it"},
		{"two pods", spec("", "") + "---\n" + spec("", ""), "f.yaml:9: a second Pod; the first is at line 1"},
		{"two classes", class + "---\n" + class + "---\n" + spec("", ""), `f.yaml:6: RuntimeClass "wasm" is defined twice`},
		{"deployment", "apiVersion: apps/v1\nkind: Deployment\n", `kind "Deployment" of "apps/v1" cannot be run`},
		{"typo", spec("hostNetwrk: true", ""), `unknown field "spec.hostNetwrk"`},
		{"bad class", spec("", "") + "---\n" + strings.Replace(class, "handler: wasm", "handler: W", 1), `f.yaml:9: RuntimeClass "wasm": handler "W"`},
		{"name", strings.Replace(spec("", ""), "name: p", "name: P_", 1), "f.yaml:1: pod \"P_\": metadata.name: "},
		{"no containers", podHead + "spec: {containers: []}\n", "spec.containers: is empty"},
		{"container name", strings.Replace(spec("", ""), "name: c", "name: c.d", 1), "spec.containers[0].name: "},
		{"no image", strings.Replace(spec("", ""), "image: example.org/c:1", "tty: true", 1), "spec.containers[0].image: is empty"},
		{"same name", spec("initContainers: [{name: c, image: i}]", ""), "spec.containers[0].name: \"c\" is the name of another"},
		{"pull policy", spec("", "imagePullPolicy: Sometimes"), "spec.containers[0].imagePullPolicy: "},
		{"port", spec("", "ports: [{containerPort: 70000}]"), "spec.containers[0].ports[0].containerPort: 70000"},
		{"host port", spec("", "ports: [{containerPort: 7, hostPort: -1}]"), "ports[0].hostPort: -1"},
		{"protocol", spec("", "ports: [{containerPort: 7, protocol: ICMP}]"), "ports[0].protocol: "},
		{"negative limit", spec("", "resources: {limits: {memory: -1}}"), "spec.containers[0].resources.requests[memory]: -1 is negative"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseManifest("f.yaml", []byte(tt.in))
			checkError(t, err, tt.want)
		})
	}
}

func TestUnsupported(t *testing.T) {
	for _, tt := range []struct{ pod, container, want string }{
		{"", "", ""},
		{"restartPolicy: Never", "", ""},
		{"enableServiceLinks: false\nautomountServiceAccountToken: false\nhostUsers: true\nos: {name: linux}", "", ""},
		{"terminationGracePeriodSeconds: 3\nhostname: h\nhostNetwork: true\nhostPID: true\nhostIPC: true", "", ""},
		{"volumes: [{name: a, emptyDir: {}}, {name: b, hostPath: {path: /x}}, {name: c}]", "", ""},
		{"", "lifecycle: {stopSignal: SIGINT}\nimagePullPolicy: Never\ntty: true", ""},
		{"securityContext: {runAsUser: 1, fsGroup: 2, sysctls: [{name: a.b, value: c}]}", "securityContext: {privileged: true, procMount: Default}", ""},

		{"restartPolicy: Always", "", "spec.restartPolicy: Always"},
		{"restartPolicy: OnFailure", "", "spec.restartPolicy: OnFailure"},
		{"activeDeadlineSeconds: 5", "", "spec.activeDeadlineSeconds: is not supported"},
		{"nodeSelector: {a: b}", "", "spec.nodeSelector: is not supported"},
		{"nodeName: node", "", "spec.nodeName: is not supported"},
		{"tolerations: [{key: a}]", "", "spec.tolerations[0].key: is not supported"},
		{"affinity: {nodeAffinity: {}}", "", "spec.affinity.nodeAffinity: is not supported"},
		{"serviceAccountName: s", "", "spec.serviceAccountName: is not supported"},
		{"automountServiceAccountToken: true", "", "spec.automountServiceAccountToken: true"},
		{"imagePullSecrets: [{name: s}]", "", "spec.imagePullSecrets[0].name: is not supported"},
		{"hostAliases: [{ip: 1.2.3.4}]", "", "spec.hostAliases[0].ip: is not supported"},
		{"hostUsers: false", "", "spec.hostUsers: false"},
		{"subdomain: d", "", "spec.subdomain: is not supported"},
		{"os: {name: windows}", "", "spec.os.name: windows"},
		{"dnsPolicy: ClusterFirst", "", "spec.dnsPolicy: ClusterFirst"},
		{"dnsPolicy: None", "", "spec.dnsConfig.nameservers: is empty"},
		{"dnsConfig: {nameservers: [1.1.1.1]}", "", "spec.dnsConfig: needs dnsPolicy None"},
		{"shareProcessNamespace: true\nhostPID: true", "", "spec.shareProcessNamespace: "},
		{"securityContext: {fsGroupChangePolicy: Always}", "", "spec.securityContext.fsGroupChangePolicy: is not supported"},
		{"volumes: [{name: a, configMap: {name: m}}]", "", "spec.volumes[0].configMap.name: is not supported"},
		{"volumes: [{name: a, secret: {}}]", "", "spec.volumes[0].secret: is not supported"},
		{"volumes: [{name: a, emptyDir: {medium: Memory}}]", "", "spec.volumes[0].emptyDir.medium: is not supported"},
		{"volumes: [{name: a, emptyDir: {sizeLimit: 1Mi}}]", "", "spec.volumes[0].emptyDir.sizeLimit: is not supported"},
		{"volumes: [{name: a, image: {reference: r, pullPolicy: Never}}]", "volumeMounts: [{name: a, mountPath: /a, subPath: b}]", ""},
		{"ephemeralContainers: [{name: e}]", "", "spec.ephemeralContainers[0].name: is not supported"},

		{"", "env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]", "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: is not supported"},
		{"", "envFrom: [{configMapRef: {name: m}}]", "spec.containers[0].envFrom[0].configMapRef.name: is not supported"},
		{"", "livenessProbe: {tcpSocket: {port: 1}}", "spec.containers[0].livenessProbe.tcpSocket.port"},
		{"", "lifecycle: {preStop: {exec: {command: [a]}}}", "spec.containers[0].lifecycle.preStop.exec.command[0]: is not supported"},
		{"", "stdin: true", "spec.containers[0].stdin: is not supported"},
		{"", "volumeMounts: [{name: a, mountPath: /a, subPathExpr: b}]", "spec.containers[0].volumeMounts[0].subPathExpr: is not supported"},
		{"", "restartPolicy: Always", "spec.containers[0].restartPolicy: Always"},
		{"", "securityContext: {procMount: Unmasked}", "spec.containers[0].securityContext.procMount: Unmasked"},
		{"", "resources: {claims: [{name: a}]}", "spec.containers[0].resources.claims[0].name: is not supported"},
		{"", "terminationMessagePath: /x", "spec.containers[0].terminationMessagePath: is not supported"},
	} {
		_, err := parseManifest("f.yaml", []byte(spec(tt.pod, tt.container)))
		if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) || tt.want == "" && err != nil {
			t.Errorf("%s %s: error %v, want %q", tt.pod, tt.container, err, tt.want)
		}
	}
	_, err := parseManifest("f.yaml", []byte(strings.Replace(spec("", ""), "name: p", "name: p, creationTimestamp: \"2026-01-01T00:00:00Z\"", 1)))
	checkError(t, err, "metadata.creationTimestamp: is not supported")
	_, err = parseManifest("f.yaml", []byte(spec("", "")+"status: {phase: Running}\n"))
	checkError(t, err, "status.phase: is not supported")
}

func TestHandler(t *testing.T) {
	const class = "---\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: light}\nhandler: wasm\noverhead: {podFixed: {memory: 8Mi}}\n"
	have := []string{"", "runc", "wasm"}
	for _, tt := range []struct {
		name, in, override string
		want               string
		overhead           bool
		err                string
	}{
		{"default", spec("", ""), "", "", false, ""},
		{"class", spec("runtimeClassName: light", "") + class, "", "wasm", true, ""},
		{"class named like a handler", spec("runtimeClassName: runc", ""), "", "runc", false, ""},
		{"override of nothing", spec("", ""), "wasm", "wasm", false, ""},
		{"override of a class", spec("runtimeClassName: light", "") + class, "runc", "runc", true, ""},
		{"override of an unknown class", spec("runtimeClassName: other", ""), "runc", "runc", false, ""},
		{"unknown class", spec("runtimeClassName: other", "") + class, "", "", false, `spec.runtimeClassName: find RuntimeClass "other" (there are: light): not found, and no handler of the server has that name (handlers: runc, wasm)`},
		{"handler the server lacks", spec("runtimeClassName: light", "") + strings.Replace(class, "handler: wasm", "handler: kata", 1), "", "", false, `runtime handler "kata" is not configured in the server (handlers: runc, wasm)`},
		{"override the server lacks", spec("", ""), "kata", "", false, `runtime handler "kata"`},
		{"overhead as declared", spec("runtimeClassName: light\noverhead: {memory: 8192Ki}", "") + class, "", "wasm", true, ""},
		{"other overhead", spec("runtimeClassName: light\noverhead: {memory: 9Mi}", "") + class, "", "", false, "spec.overhead: the pod has memory 9Mi"},
		{"overhead without class", spec("overhead: {memory: 9Mi}", ""), "", "", false, "spec.overhead: the pod has memory 9Mi"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := parseManifest("f.yaml", []byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.handler(tt.override, have)
			checkError(t, err, tt.err)
			if err == nil && (got != tt.want || (len(m.pod.Spec.Overhead) > 0) != tt.overhead) {
				t.Errorf("handler %q, overhead %v", got, m.pod.Spec.Overhead)
			}
		})
	}
}

func TestReadManifest(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pod := write("pod.yaml", spec("", ""))
	classes := write("classes.yaml", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: a\n")
	m, err := readManifest(Options{File: pod, RuntimeClassFiles: []string{classes}})
	if err != nil || m.pod.Name != "p" || len(m.classes) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	m, err = readManifest(Options{File: "-", Reader: strings.NewReader(spec("", ""))})
	if err != nil || m.pod.Name != "p" {
		t.Fatalf("%+v, %v", m, err)
	}
	_, err = readManifest(Options{File: pod, RuntimeClassFiles: []string{classes, classes}})
	checkError(t, err, "is defined twice")
	if _, err := readManifest(Options{File: filepath.Join(dir, "none")}); !os.IsNotExist(errUnwrap(err)) {
		t.Errorf("error %v", err)
	}
}

func errUnwrap(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return err
}

func TestDefaultPolicy(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"a": corev1.PullAlways, "a:latest": corev1.PullAlways, "a:1": corev1.PullIfNotPresent,
		"host:5000/a": corev1.PullAlways, "host:5000/a:1": corev1.PullIfNotPresent,
		"a@sha256:00": corev1.PullIfNotPresent, "a:latest@sha256:00": corev1.PullIfNotPresent,
	} {
		if got := defaultPolicy(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("unexpected error: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want it to have %q in it", err, want)
	case want != "" && !errdefs.IsInvalidArgument(err):
		t.Errorf("error %v is not of class ErrInvalidArgument", err)
	}
}
