package manifest

import (
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// Amounts with exponents must cost nothing.
func TestHostileAmounts(t *testing.T) {
	for _, q := range []string{"1e2147483647", "1e1000000000", "1e-1000000000", "9e99999999999999999999", "1.5e18E", "\"" + "1" + "e9223372036854775807\""} {
		began := time.Now()
		_, _, err := Parse("f", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: a, resources: {limits: {memory: "+q+"}}}]}\n"), Options{})
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %s", q, took)
		}
		if err != nil && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", q, err)
		}
	}
}

// Whatever a file holds, it is parsed or refused.
func FuzzParse(f *testing.F) {
	f.Add([]byte(web))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: b}}]\n"))
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata:\nspec: {containers: [null], volumes: [null], affinity: {nodeAffinity: {}}}\n"))
	f.Add([]byte("apiVersion: v1\nkind: Pod\nspec: {containers: [{lifecycle: {preStop: null}, livenessProbe: {}, env: [{valueFrom: {}}]}], resources: {}}\n"))
	f.Add([]byte("apiVersion: v1\nkind: PersistentVolumeClaim\nspec: null\n---\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\noverhead: {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, _, err := Parse("f", data, Options{})
		if err != nil && !errdefs.IsInvalidArgument(err) {
			t.Errorf("error %v", err)
		}
		for _, o := range objects {
			if len(o.Hash()) != 64 || o.Name == "" {
				t.Errorf("object %+v", o.Key)
			}
		}
	})
}
