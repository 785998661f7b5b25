package podagent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

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

// VO17: the data of a claim whose file is gone is shown, and deleted when the claim is.
func TestReleasedClaim(t *testing.T) {
	r := newRig(t)
	r.file("a.yaml", claimText)
	r.start()
	data := filepath.Join(r.dir, "pods", "claims", "default", "db", "table")
	r.must(os.MkdirAll(filepath.Dir(data), 0o777)) // as the first pod's start
	r.must(os.WriteFile(data, []byte("kept"), 0o600))
	phase := func() string {
		text := ""
		for _, c := range list[corev1.PersistentVolumeClaim](r, "pvc") {
			text += c.Namespace + "/" + c.Name + " " + string(c.Status.Phase) + ";"
		}
		return text
	}
	r.until("bound", func() bool { return phase() == "default/db Bound;" })
	db := api.DeleteRequest{Key: manifest.Key{Kind: manifest.KindClaim, Namespace: "default", Name: "db"}}
	if err := r.client.Delete(t.Context(), db); !errdefs.IsFailedPrecondition(err) || phase() != "default/db Bound;" {
		t.Errorf("a claim of a file: %v, %s", err, phase())
	}
	claims := r.watch("pvc")
	r.file("a.yaml", "")
	r.next(claims, "MODIFIED db")
	if phase() != "default/db Released;" {
		t.Errorf("without its file: %s", phase())
	}
	user := filepath.Join(r.dir, "pods", "11111111-2222-3333-4444-555555555555", "volumes")
	r.must(os.MkdirAll(user, 0o700))
	r.must(os.Symlink(filepath.Dir(data), filepath.Join(user, "v")))
	if err := r.client.Delete(t.Context(), db); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("data that a pod uses: %v", err)
	}
	r.must(os.RemoveAll(filepath.Dir(user)))
	if _, err := os.Stat(data); err != nil {
		t.Error(err)
	}
	r.must(r.client.Delete(t.Context(), db))
	r.next(claims, "DELETED db")
	if _, err := os.Stat(filepath.Dir(data)); !errors.Is(err, fs.ErrNotExist) || phase() != "" {
		t.Errorf("after it was deleted: %v, %s", err, phase())
	}
	if err := r.client.Delete(t.Context(), db); !errdefs.IsNotFound(err) {
		t.Errorf("a claim without data: %v", err)
	}
}

// B.10: after all pods were deleted, nothing that would have no effect is applied.
func TestDeleteAll(t *testing.T) {
	r := newRig(t)
	r.file("a.yaml", configText)
	r.start()
	r.until("loaded", func() bool { return len(list[any](r, "cm")) == 1 })
	r.must(r.client.Delete(t.Context(), api.DeleteRequest{Manifests: true}))
	request := api.ApplyRequest{File: "b.yaml", Data: []byte(secretText)}
	if _, err := r.client.Apply(t.Context(), request); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("apply: %v", err)
	}
	if files := list[api.Manifest](r, "manifests"); len(files) != 1 || files[0].Objects != 1 {
		t.Errorf("files %+v", files)
	}
	r.stop()
	r.start()
	if _, err := r.client.Apply(t.Context(), request); err != nil {
		t.Errorf("apply after a new start: %v", err)
	}
}

// B.5: the node's own classes and its handlers are listed beside those of manifests, which come
// first where both have a name. They have no age, and cannot be deleted.
func TestConfiguredClasses(t *testing.T) {
	r := newRig(t)
	r.file("class.yaml", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: light}\nhandler: runc\n")
	r.start()
	r.until("the class", func() bool { return len(r.set.Classes()) == 1 })
	var got []string
	for _, c := range list[nodev1.RuntimeClass](r, "runtimeclasses") {
		got = append(got, fmt.Sprintf("%s %s %v", c.Name, c.Handler, c.CreationTimestamp.IsZero()))
	}
	if want := []string{"light runc false", "runc runc true", "wasm wasm true"}; !slices.Equal(got, want) {
		t.Errorf("classes %q, want %q", got, want)
	}
	err := r.client.Delete(t.Context(), api.DeleteRequest{Key: manifest.Key{Kind: manifest.KindRuntimeClass, Name: "wasm"}})
	if !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a handler is deleted: %v", err)
	}
	err = r.client.Delete(t.Context(), api.DeleteRequest{Key: manifest.Key{Kind: manifest.KindRuntimeClass, Name: "none"}})
	if !errdefs.IsNotFound(err) {
		t.Errorf("a class that is not there is deleted: %v", err)
	}
}

// Who has applied a pod can name it in the next command.
func TestAppliedPodIsThere(t *testing.T) {
	r := newRig(t)
	r.start()
	r.file("a.yaml", configText)
	r.until("listed", func() bool { return len(list[any](r, "cm")) == 1 })
	for i := range 5 {
		name := fmt.Sprint("p", i)
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  schedulingGates: [{name: example.com/wait}]\n  containers: [{name: app, image: app}]\n"
		if _, err := r.client.Apply(t.Context(), api.ApplyRequest{File: "pod.yaml", Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		if _, there := r.agent.Pod("default", name); !there {
			t.Errorf("%s is not there after it was applied", name)
		}
	}
}
