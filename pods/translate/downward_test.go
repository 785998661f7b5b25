package translate

import (
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// EV5
func TestFieldRef(t *testing.T) {
	pod := specPod(t, "nodeName: edge-1\nserviceAccountName: robot", "")
	pod.Labels, pod.Annotations = map[string]string{"k": "v", "a/b.c": "slash"}, map[string]string{"k": "note"}
	in := input(pod)
	for path, want := range map[string]string{
		"metadata.name": "web", "metadata.namespace": "default", "metadata.uid": "u-1",
		"metadata.labels['k']": "v", "metadata.labels['a/b.c']": "slash", "metadata.labels['none']": "",
		"metadata.annotations['k']": "note", "metadata.annotations['none']": "",
		"spec.nodeName": "edge-1", "spec.serviceAccountName": "robot",
		"status.hostIP": "198.51.100.4", "status.hostIPs": "198.51.100.4,2001:db8::4",
		"status.podIP": "10.1.0.7", "status.podIPs": "10.1.0.7,2001:db8:1::7",
	} {
		if got, err := FieldRef(in, &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"metadata.labels", "metadata.labels['k", "metadata.labels[k]", "metadata.name['k']", "spec.containers", "", "['k']"} {
		_, err := FieldRef(in, &corev1.ObjectFieldSelector{FieldPath: path})
		checkText(t, err, "fieldRef.fieldPath: field label not supported: "+path+": invalid argument", errdefs.IsInvalidArgument)
	}
	_, err := FieldRef(in, &corev1.ObjectFieldSelector{APIVersion: "v2", FieldPath: "metadata.name"})
	checkText(t, err, "fieldRef.apiVersion: unsupported pod version: v2: invalid argument", errdefs.IsInvalidArgument)
}

// EV5, NW7: a pod in the host's network has the node's addresses.
func TestFieldRefAddresses(t *testing.T) {
	in := input(specPod(t, "hostNetwork: true", ""))
	in.IPs = nil
	for path, want := range map[string]string{"status.podIP": "198.51.100.4", "status.podIPs": "198.51.100.4,2001:db8::4"} {
		if got, err := FieldRef(in, &corev1.ObjectFieldSelector{FieldPath: path}); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
	in.Node.IPs = nil
	for _, path := range []string{"status.hostIP", "status.hostIPs"} {
		_, err := FieldRef(in, &corev1.ObjectFieldSelector{FieldPath: path})
		checkText(t, err, "fieldRef "+path+`: node "edge-1" has no IP address`, errdefs.IsFailedPrecondition)
	}
	if got, err := FieldRef(in, &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}); got != "" || err != nil {
		t.Errorf("without an address: %q, %v", got, err)
	}
}

// EV6: the node has 4 CPUs, 3Gi and 10Gi to give.
func TestResourceFieldRef(t *testing.T) {
	const resources = "resources: {limits: {cpu: 1500m, memory: 100Mi, ephemeral-storage: 1G, hugepages-2Mi: 4Mi}, requests: {cpu: 250m, memory: 64M, ephemeral-storage: 1M, hugepages-2Mi: 4Mi}}"
	for _, tt := range []struct{ name, spec, container, resource, divisor, want string }{
		{"cpu", "", resources, "limits.cpu", "", "2"},
		{"cpu by 1m", "", resources, "limits.cpu", "1m", "1500"},
		{"cpu rounded up", "", resources, "requests.cpu", "1", "1"},
		{"cpu by 100m", "", resources, "requests.cpu", "100m", "3"},
		{"memory", "", resources, "limits.memory", "0", "104857600"},
		{"memory by 1Mi", "", resources, "limits.memory", "1Mi", "100"},
		{"memory by 1M", "", resources, "limits.memory", "1M", "105"},
		{"memory by 1Gi", "", resources, "limits.memory", "1Gi", "1"},
		{"memory request", "", resources, "requests.memory", "1Mi", "62"},
		{"storage", "", resources, "limits.ephemeral-storage", "1Ki", "976563"},
		{"storage request", "", resources, "requests.ephemeral-storage", "1", "1000000"},
		{"huge pages", "", resources, "limits.hugepages-2Mi", "2Mi", "2"},
		{"huge pages request", "", resources, "requests.hugepages-2Mi", "1", "4194304"},
		{"no huge pages", "", "", "limits.hugepages-2Mi", "1", "0"},
		{"no limit: what the node can give", "", "", "limits.cpu", "1m", "4000"},
		{"no memory limit", "", "", "limits.memory", "1Mi", "3072"},
		{"no storage limit", "", "", "limits.ephemeral-storage", "1Gi", "10"},
		{"no request", "", "", "requests.memory", "1", "0"},
		{"pod's limit", "resources: {limits: {cpu: 300m, memory: 1Gi}}", "", "limits.cpu", "1m", "300"},
		{"pod's memory limit", "resources: {limits: {memory: 1Gi}}", "", "limits.memory", "1Mi", "1024"},
		{"own before the pod's", "resources: {limits: {memory: 1Gi}}", resources, "limits.memory", "1Mi", "100"},
		{"pods have no limit of storage", "resources: {limits: {ephemeral-storage: 1Gi}}", "", "limits.ephemeral-storage", "1Gi", "10"},
		{"great", "", "resources: {limits: {memory: 9223372036854775807}}", "limits.memory", "1", "9223372036854775807"},
		{"greatest cpu", "", "resources: {limits: {cpu: 9223372036854775807}}", "limits.cpu", "1m", "9223372036854775807000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(specPod(t, tt.spec, tt.container))
			ref := &corev1.ResourceFieldSelector{Resource: tt.resource}
			if tt.divisor != "" {
				ref.Divisor = resource.MustParse(tt.divisor)
			}
			got, err := ResourceFieldRef(in, &in.Pod.Spec.Containers[0], ref)
			if got != tt.want || err != nil {
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			}
			ref.ContainerName = "app"
			if named, err := ResourceFieldRef(in, nil, ref); named != got || err != nil {
				t.Errorf("by name: %q, %v", named, err)
			}
		})
	}
	in := input(specPod(t, "", ""))
	_, err := ResourceFieldRef(in, nil, &corev1.ResourceFieldSelector{Resource: "limits.cpu", ContainerName: "none"})
	checkText(t, err, "container none not found", errdefs.IsNotFound)
	_, err = ResourceFieldRef(in, nil, &corev1.ResourceFieldSelector{Resource: "limits.cpu"})
	checkText(t, err, "resourceFieldRef.containerName: is empty: invalid argument", errdefs.IsInvalidArgument)
}
