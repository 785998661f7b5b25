package translate

import (
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VO12
func TestVolumeField(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "shop", UID: "u-1",
		Labels: map[string]string{"b": "2", "a": "1"}, Annotations: map[string]string{"x": "line\n\"quoted\" \\ end", "k": ""},
	}}
	for path, want := range map[string]string{
		"metadata.name": "web", "metadata.namespace": "shop", "metadata.uid": "u-1",
		"metadata.labels": "a=\"1\"\nb=\"2\"", "metadata.labels['b']": "2", "metadata.labels['none']": "",
		"metadata.annotations": `k=""` + "\n" + `x="line\n\"quoted\" \\ end"`,
	} {
		if got, err := VolumeField(pod, path); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"spec.nodeName", "status.podIP", "metadata.none", ""} {
		if got, err := VolumeField(pod, path); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %q, %v, want invalid argument", path, got, err)
		}
	}
}
