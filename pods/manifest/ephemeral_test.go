package manifest

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sunaba-project/sunaba/pods/manifest/validation"
)

// EP1, EP2: what a debug container may have.
func TestCheckEphemeral(t *testing.T) {
	pod := podOf(t, "initContainers: [{name: i, image: i}], containers: [{name: app, image: a}], volumes: [{name: v}]")
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "old"}}}
	for _, c := range []struct{ debug, want string }{
		{"name: d, image: \"busybox:1\", targetContainerName: app, stdin: true, tty: true, volumeMounts: [{name: v, mountPath: /v}]", ""},
		{"name: app, image: a", `name: "app": is the name of another container of this pod too`},
		{"name: i, image: a", "is the name of another container"},
		{"name: old, image: a", "is the name of another container"},
		{"name: d", "image: is required"},
		{"image: a", "name: is required"},
		{"name: d, image: a, targetContainerName: b", `targetContainerName: "b": is no container of this pod`},
		{"name: d, image: a, targetContainerName: old", `targetContainerName: "old": is no container of this pod`},
		{"name: d, image: a, ports: [{containerPort: 1}]", "ports: is not supported: a debug container has none"},
		{"name: d, image: a, livenessProbe: {exec: {command: [a]}}", "livenessProbe: is not supported"},
		{"name: d, image: a, lifecycle: {preStop: {exec: {command: [a]}}}", "lifecycle: is not supported"},
		{"name: d, image: a, resources: {limits: {cpu: 1}}", "resources: is not supported"},
		{"name: d, image: a, volumeMounts: [{name: v, mountPath: /v, subPath: a}]", "must not have subPath"},
		{"name: d, image: a, volumeMounts: [{name: w, mountPath: /v}]", `volumeMounts[0].name: "w": is no volume`},
		{"name: d, image: a, securityContext: {privileged: true, allowPrivilegeEscalation: false}", "must not be false when privileged"},
	} {
		var debug corev1.EphemeralContainer
		if err := yaml.UnmarshalStrict([]byte("{"+c.debug+"}"), &debug); err != nil {
			t.Fatal(err)
		}
		got, err := CheckEphemeral(pod, &debug)
		if c.want != "" {
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "spec.ephemeralContainers[1].") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want %q", c.debug, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.debug, err)
		} else if got.ImagePullPolicy != corev1.PullIfNotPresent || got.TerminationMessagePath == "" || debug.ImagePullPolicy != "" {
			t.Errorf("defaults %+v of %+v", got, debug)
		}
	}
}

// Containers come in the order of their start, with the paths of their fields.
func TestContainers(t *testing.T) {
	pod := podOf(t, "initContainers: [{name: i, image: i}, {name: s, image: s, restartPolicy: Always}], containers: [{name: a, image: a, restartPolicy: Always}]")
	want := []struct {
		name, path    string
		init, sidecar bool
	}{{"i", "spec.initContainers[0]", true, false}, {"s", "spec.initContainers[1]", true, true}, {"a", "spec.containers[0]", false, false}}
	for i, c := range Containers(pod) {
		if w := want[i]; c.Name != w.name || c.Path != w.path || c.Init != w.init || c.Sidecar() != w.sidecar {
			t.Errorf("container %d is %s at %s, init %t, sidecar %t", i, c.Name, c.Path, c.Init, c.Sidecar())
		}
	}
	if &pod.Spec.Containers[0] != Containers(pod)[2].Container {
		t.Error("the container is a copy")
	}
}

func TestSplitFieldPath(t *testing.T) {
	for path, want := range map[string][2]string{
		"metadata.labels['a.b/c']": {"metadata.labels", "a.b/c"}, "metadata.name": {"metadata.name", ""},
		"metadata.labels['a'": {"metadata.labels['a'", ""}, "metadata.annotations['']": {"metadata.annotations", ""},
	} {
		if field, key, _ := validation.SplitFieldPath(path); field != want[0] || key != want[1] {
			t.Errorf("%s is %q, %q", path, field, key)
		}
	}
}
