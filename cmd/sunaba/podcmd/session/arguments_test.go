package session

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPortPairs(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 2)}}
	p.Spec.Containers[1].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	for arg, want := range map[string]portPair{"80": {80, 80}, "81:80": {81, 80}, ":80": {0, 80}, "0:80": {0, 80}, "http": {8080, 8080}, "80:http": {80, 8080}} {
		if got, err := portPairs(p, []string{arg}); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, %v", arg, got, err)
		}
	}
}

func TestFileSpecs(t *testing.T) {
	for text, want := range map[string]fileSpec{
		"a": {"ns", "", "a"}, "web:/a": {"ns", "web", "/a"}, "prod/web:a:b": {"prod", "web", "a:b"}, "./a:b": {"ns", "", "./a:b"}, "/a:b": {"ns", "", "/a:b"},
	} {
		if got, err := fileSpecOf(text, "ns"); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}
