package desired

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/manifest"
)

// soon bounds what is done at once, before the next listing; a loaded machine is slow.
const soon = 15 * time.Second

// node is a folder of manifests and a Set that watches it.
type node struct {
	*Set
	t       *testing.T
	options Options
	dir     string
	stop    func()
}

// newNode makes a folder and a store, for a test beside others. They are not opened yet.
func newNode(t *testing.T) *node {
	t.Helper()
	t.Parallel()
	top := t.TempDir()
	n := &node{t: t, dir: filepath.Join(top, "manifests"), stop: func() {}}
	n.options = Options{Folders: []string{n.dir}, Store: filepath.Join(top, "pods"), Logger: slog.New(slog.DiscardHandler)}
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

// start opens the set and runs it, after it was stopped if it ran.
func (n *node) start() *node {
	n.t.Helper()
	n.stop()
	s, err := Open(n.options)
	if err != nil {
		n.t.Fatal(err)
	}
	n.Set = s
	ctx, cancel := context.WithCancel(n.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() {}) }()
	n.stop = func() {
		n.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			n.t.Error(err)
		}
		n.stop = func() {}
	}
	n.t.Cleanup(func() { n.stop() })
	select {
	case <-s.Listed():
	case <-time.After(soon):
		n.t.Fatal("the folder was not listed")
	}
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// put writes a file beside its place and moves it there, as most editors do.
func (n *node) put(name string, documents ...string) {
	n.t.Helper()
	temporary := n.path("." + name + ".swp")
	n.check(os.WriteFile(temporary, []byte(strings.Join(documents, "---\n")), 0o644))
	n.check(os.Rename(temporary, n.path(name)))
}

// check fails the test for an error.
func (n *node) check(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// until waits for a condition and says how long it took.
func (n *node) until(what string, condition func() bool) time.Duration {
	n.t.Helper()
	start := time.Now()
	for !condition() {
		if time.Since(start) > soon {
			n.t.Fatalf("not so: %s; files %+v, objects %v", what, n.Files(), n.have())
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(start)
}

// during says that a condition is not false at any moment of a time.
func (n *node) during(d time.Duration, what string, condition func() bool) {
	n.t.Helper()
	for start := time.Now(); time.Since(start) < d; time.Sleep(time.Millisecond) {
		if !condition() {
			n.t.Fatalf("not so all the time: %s; files %+v, objects %v", what, n.Files(), n.have())
		}
	}
}

// have are the objects as text, with the image of pods and the data of ConfigMaps.
func (n *node) have() []string {
	var out []string
	for _, e := range n.Objects() {
		text := e.Key.String()
		switch v := e.Value.(type) {
		case *corev1.Pod:
			text += " " + v.Spec.Containers[0].Image
		case *corev1.ConfigMap:
			text += " " + v.Data["k"]
		}
		if e.File != "" {
			text += " " + filepath.Base(e.File)
		}
		out = append(out, text)
	}
	return out
}

func (n *node) has(want ...string) func() bool {
	return func() bool { return slices.Equal(n.have(), want) }
}

func (n *node) file(name string) File {
	for _, f := range n.Files() {
		if f.Path == n.path(name) || f.Path == name {
			return f
		}
	}
	return File{}
}

func (n *node) is(name string, status Status, message string) func() bool {
	return func() bool {
		f := n.file(name)
		return f.Status == status && strings.Contains(f.Message, message) && (message != "" || f.Message == "")
	}
}

func pod(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %q}\nspec:\n  containers:\n  - {name: app, image: %q}\n", name, image)
}

func config(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {k: %q}\n", name, value)
}

func class(name, handler string) string {
	return fmt.Sprintf("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: %s}\nhandler: %s\n", name, handler)
}

func key(kind, name string) manifest.Key {
	return manifest.Key{Kind: kind, Namespace: "default", Name: name}
}

// B.2: the order of objects, and that they are found by key.
func TestObjects(t *testing.T) {
	n := newNode(t)
	second := filepath.Join(t.TempDir(), "second")
	n.check(os.Mkdir(second, 0o755))
	n.options.Folders = append(n.options.Folders, second)
	n.put("b.yaml", pod("b2", "i:1"), pod("b1", "i:1"))
	n.put("a.json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":"v"}}`)
	n.check(os.WriteFile(filepath.Join(second, "a.yml"), []byte(class("wasm", "wasm")+"---\n"+
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: v}\n---\n"+
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: p}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"), 0o644))
	n.start()
	if _, _, err := n.Apply("x.yaml", []byte(pod("applied", "i:1")), "", false); err != nil {
		t.Fatal(err)
	}
	n.until("all objects are there", n.has("configmap default/c v a.json", "pod default/b2 i:1 b.yaml", "pod default/b1 i:1 b.yaml",
		"runtimeclass wasm a.yml", "secret default/s a.yml", "persistentvolumeclaim default/p a.yml", "pod default/applied i:1"))
	if c, ok := n.ConfigMap("default", "c"); !ok || c.Data["k"] != "v" {
		t.Errorf("ConfigMap = %v, %v", c, ok)
	}
	if s, ok := n.Secret("default", "s"); !ok || s.Name != "s" {
		t.Errorf("Secret = %v, %v", s, ok)
	}
	if c, ok := n.Claim("default", "p"); !ok || c.Name != "p" {
		t.Errorf("Claim = %v, %v", c, ok)
	}
	if all := n.Classes(); len(all) != 1 || all[0].Handler != "wasm" {
		t.Errorf("Classes = %v", all)
	}
	if _, ok := n.Secret("default", "c"); ok {
		t.Error("a ConfigMap was found as a Secret")
	}
	e, ok := n.Get(key(manifest.KindPod, "b1"))
	if !ok || e.Source.Kind != "file" || e.Source.File != n.path("b.yaml") || e.Source.Hash != e.Object.Hash() || e.Document != 2 || time.Since(e.Seen) > soon {
		t.Errorf("Get = %+v, %v", e, ok)
	}
	if e, _ := n.Get(key(manifest.KindPod, "applied")); e.Source.Kind != "api" || e.Source.Hash == "" || e.Source.File != "" {
		t.Errorf("applied: %+v", e.Source)
	}
	if f := n.file("b.yaml"); f.Status != Loaded || f.Objects != 2 || f.Message != "" {
		t.Errorf("file %+v", f)
	}
}

// Run says that something changed, once after the first listing and after each change.
func TestChanged(t *testing.T) {
	n := newNode(t)
	s, err := Open(n.options)
	n.check(err)
	changed, ended := make(chan int, 100), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- s.Run(ctx, func() { changed <- len(s.Objects()) }) }()
	want := func(objects int) {
		t.Helper()
		for deadline := time.After(soon); ; {
			select {
			case got := <-changed:
				if got == objects {
					return
				}
			case <-deadline:
				t.Fatalf("changed was not called with %d objects", objects)
			}
		}
	}
	want(0)
	n.put("a.yaml", pod("a", "i:1"))
	want(1)
	if err := s.Run(ctx, func() {}); err == nil || !strings.Contains(err.Error(), "watched already") {
		t.Errorf("a second Run: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestOpenRefusesFolders(t *testing.T) {
	for _, folders := range [][]string{{"relative"}, {"/a", "/a/"}} {
		if _, err := Open(Options{Folders: folders, Store: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "not absolute, or is there twice") {
			t.Errorf("%v: %v", folders, err)
		}
	}
}
