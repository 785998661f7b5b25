package podagent

import (
	"testing"
	"time"

	"github.com/sunaba-project/sunaba/pods/api"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

const (
	configText = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: page}\ndata: {a: VALUE}\n"
	secretText = "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {a: VALUE}\n"
	claimText  = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: db}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
	classText  = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: edge}\nhandler: runc\n"
)

// Every kind of object wakes those who watch it, however it changes: without pods nothing else
// does.
func TestWatchWakes(t *testing.T) {
	r := newRig(t)
	r.start()
	time.Sleep(100 * time.Millisecond) // what the start tells is told
	files, maps, secrets, claims, classes := r.watch("manifests"), r.watch("cm"), r.watch("secrets"), r.watch("pvc"), r.watch("runtimeclasses")
	r.file("a.yaml", configText+"---\n"+secretText)
	r.next(files, "ADDED a.yaml Loaded")
	r.next(maps, "ADDED page")
	r.next(secrets, "ADDED key")
	r.file("b.yaml", classText)
	r.next(files, "ADDED b.yaml Loaded")
	r.next(classes, "ADDED edge")
	r.file("a.yaml", configText+"edited: true\n")
	r.next(files, "MODIFIED a.yaml Refused")
	r.file("a.yaml", configText+"binaryData: {b: AAAA}\n")
	r.next(files, "MODIFIED a.yaml Loaded")
	r.next(maps, "MODIFIED page")
	r.next(secrets, "DELETED key")
	r.file("b.yaml", "")
	r.next(files, "MODIFIED b.yaml Gone")
	r.next(files, "DELETED b.yaml Gone")
	r.next(classes, "DELETED edge")
	// What is applied and deleted by commands is seen as well.
	if _, err := r.client.Apply(t.Context(), api.ApplyRequest{File: "claim.yaml", Data: []byte(claimText)}); err != nil {
		t.Fatal(err)
	}
	r.next(claims, "ADDED db")
	if err := r.client.Delete(t.Context(), api.DeleteRequest{Key: manifest.Key{Kind: manifest.KindClaim, Namespace: "default", Name: "db"}}); err != nil {
		t.Fatal(err)
	}
	r.next(claims, "DELETED db")
}

// The node wakes those who watch it when it is low on something, shuts down, or gets well; not when
// it is measured and nothing changed.
func TestWatchNode(t *testing.T) {
	r := newRig(t)
	r.start()
	time.Sleep(100 * time.Millisecond)
	nodes := r.watch("nodes")
	r.file("a.yaml", configText)
	r.until("loaded", func() bool { return len(list[any](r, "cm")) == 1 })
	r.dial.available.Store(1 << 20)
	r.dial.alarm <- struct{}{}
	r.next(nodes, "MODIFIED till-4 MemoryPressure=True Ready=True")
	if err := r.client.Shutdown(t.Context(), api.ShutdownRequest{}); err != nil {
		t.Fatal(err)
	}
	r.next(nodes, "MODIFIED till-4 MemoryPressure=True Ready=False")
	if err := r.client.Shutdown(t.Context(), api.ShutdownRequest{Cancel: true}); err != nil {
		t.Fatal(err)
	}
	r.next(nodes, "MODIFIED till-4 MemoryPressure=True Ready=True")
}
