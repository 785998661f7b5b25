package desired

import (
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/pods/manifest"
)

func TestFixed(t *testing.T) {
	objects, _, err := manifest.Parse("f.yaml", []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: b}}\n---\n"+
		"{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: 'i:1'}]}}\n"), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var entries []Entry
	for _, o := range objects {
		entries = append(entries, Entry{Object: o})
	}
	s, pod := NewFixed(entries), objects[1].Key
	select {
	case <-s.Listed():
	default:
		t.Error("it is not listed")
	}
	if m, found := s.ConfigMap("default", "m"); !found || m.Data["a"] != "b" {
		t.Errorf("config map %v, %v", m, found)
	}
	if _, found := s.Secret("default", "m"); found {
		t.Error("a secret that is not there")
	}
	if err := s.Delete(pod); err != nil || len(s.Objects()) != 1 {
		t.Errorf("%v, objects %v", err, s.Objects())
	}
	if _, found := s.Get(pod); found {
		t.Error("the pod is there after it was deleted")
	}
	if err := s.Delete(pod); !errdefs.IsNotFound(err) {
		t.Errorf("second delete: %v", err)
	}
	if len(entries) != 2 || entries[1].Key != pod {
		t.Error("the caller's slice was changed")
	}
}
