package inputs

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/sunaba-project/sunaba/pods/manifest"
)

// Every way in which a pod can use an object is seen, with the containers that use it.
func TestOf(t *testing.T) {
	objects, _, err := manifest.Parse("a.yaml", []byte(`
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  imagePullSecrets: [{name: pull}]
  initContainers:
  - {name: first, image: a, volumeMounts: [{name: files, mountPath: /files}]}
  containers:
  - name: app
    image: a
    envFrom: [{configMapRef: {name: all}}, {secretRef: {name: secrets}}]
    volumeMounts: [{name: files, mountPath: /files}, {name: mixed, mountPath: /mixed}, {name: data, mountPath: /data}]
  - name: other
    image: a
    env:
    - {name: A, valueFrom: {configMapKeyRef: {name: all, key: k}}}
    - {name: B, valueFrom: {secretKeyRef: {name: one, key: k}}}
    - {name: C, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    volumeMounts: [{name: hidden, mountPath: /hidden}]
  volumes:
  - {name: files, configMap: {name: files}}
  - {name: hidden, secret: {secretName: hidden}}
  - {name: mixed, projected: {sources: [{configMap: {name: part}}, {secret: {name: part}}]}}
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: unused, configMap: {name: unused}}
`), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := Of(objects[0].Pod())
	want := map[string]string{
		"secret shop/pull": "[]", "configmap shop/all": "[app other]", "secret shop/secrets": "[app]", "secret shop/one": "[other]",
		"configmap shop/files": "[first app]", "secret shop/hidden": "[other]", "configmap shop/part": "[app]", "secret shop/part": "[app]",
		"persistentvolumeclaim shop/data": "[app]", "configmap shop/unused": "[]",
	}
	if have, need := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(have, need) {
		t.Errorf("objects %q, want %q", have, need)
	}
	for key, containers := range want {
		if fmt.Sprint(got[key]) != containers {
			t.Errorf("%s is used by %v, want %s", key, got[key], containers)
		}
	}
}
