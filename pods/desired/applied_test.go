package desired

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/pods/manifest"
)

func verbs(done []Applied) (out []string) {
	for _, a := range done {
		out = append(out, a.Key.String()+" "+string(a.Verb))
	}
	return out
}

// B.5: apply, its words, and that what it did holds over a restart.
func TestApply(t *testing.T) {
	n := newNode(t).start()
	apply := func(dryRun bool, namespace, data string, want ...string) {
		t.Helper()
		done, _, err := n.Apply("x.yaml", []byte(data), namespace, dryRun)
		if err != nil || !slices.Equal(verbs(done), want) {
			t.Errorf("Apply = %v, %v; want %v", verbs(done), err, want)
		}
	}
	two := pod("a", "i:1") + "---\n" + config("c", "1")
	apply(true, "", two, "pod default/a created", "configmap default/c created")
	if len(n.have()) != 0 {
		t.Errorf("a dry run made %v", n.have())
	}
	apply(false, "", two, "pod default/a created", "configmap default/c created")
	apply(false, "", "# comment\n"+two, "pod default/a unchanged", "configmap default/c unchanged")
	apply(false, "", pod("a", "i:2"), "pod default/a configured")
	apply(false, "other", pod("a", "i:3"), "pod other/a created")
	apply(false, "other", class("wasm", "wasm"), "runtimeclass wasm created")
	want := []string{"configmap default/c 1", "pod default/a i:2", "pod other/a i:3", "runtimeclass wasm"}
	if !n.has(want...)() {
		t.Errorf("objects %v", n.have())
	}
	n.start()
	if !n.has(want...)() {
		t.Errorf("objects after a restart %v", n.have())
	}
	apply(false, "", pod("a", "i:2"), "pod default/a unchanged")
	n.check(n.Delete(key(manifest.KindPod, "a")))
	if err := n.Delete(key(manifest.KindPod, "a")); !errdefs.IsNotFound(err) || err.Error() != "pod default/a: not found" {
		t.Errorf("Delete: %v", err)
	}
	n.start()
	if !n.has("configmap default/c 1", "pod other/a i:3", "runtimeclass wasm")() {
		t.Errorf("objects after a deletion and a restart %v", n.have())
	}
}

func TestApplyRefuses(t *testing.T) {
	n := newNode(t)
	n.put("web.yaml", pod("web", "i:1"))
	n.start()
	n.until("loaded", n.has("pod default/web i:1 web.yaml"))
	if _, _, err := n.Apply("x.yaml", []byte(config("c", "1")+"immutable: true\n---\n"+class("wasm", "wasm")), "", false); err != nil {
		t.Fatal(err)
	}
	stands := "pod default/web stands in " + n.path("web.yaml") + ": edit or remove it there"
	for _, c := range []struct {
		data, namespace, want string
		is                    func(error) bool
	}{
		{pod("new", "i:1") + "---\n" + pod("web", "i:2"), "", "apply: " + stands, errdefs.IsFailedPrecondition},
		{config("c", "2"), "", "apply: configmap default/c: it is immutable", errdefs.IsFailedPrecondition},
		{class("wasm", "runc"), "", `its handler was "wasm" and is "runc" now`, errdefs.IsFailedPrecondition},
		{"kind: [", "", "apply: ", errdefs.IsInvalidArgument},
		{strings.Repeat("#", manifest.MaxFile+1), "", "longer than 10485760 bytes", errdefs.IsInvalidArgument},
		{pod("a", "i:1"), "A/b", `apply: namespace "A/b"`, errdefs.IsInvalidArgument},
		{strings.Replace(pod("a", "i:1"), "{name", "{namespace: x, name", 1), "y",
			`the namespace from the provided object "x" does not match the namespace "y"`, errdefs.IsInvalidArgument},
	} {
		done, _, err := n.Apply("x.yaml", []byte(c.data), c.namespace, false)
		if err == nil || !strings.Contains(err.Error(), c.want) || !c.is(err) || len(done) != 0 {
			t.Errorf("Apply = %v, %v; want %q", done, err, c.want)
		}
	}
	if err := n.Delete(key(manifest.KindPod, "web")); !errdefs.IsFailedPrecondition(err) || !strings.HasPrefix(err.Error(), stands) {
		t.Errorf("Delete: %v", err)
	}
	if !n.has("pod default/web i:1 web.yaml", "configmap default/c 1", "runtimeclass wasm")() {
		t.Errorf("objects %v", n.have())
	}
}

// One object in a file and applied: who had it first keeps it, until it is deleted there.
func TestAppliedAndInAFile(t *testing.T) {
	n := newNode(t).start()
	if _, _, err := n.Apply("x.yaml", []byte(pod("web", "i:1")), "", false); err != nil {
		t.Fatal(err)
	}
	n.put("web.yaml", pod("web", "i:2"), pod("x", "i:2"))
	n.until("refused", n.is("web.yaml", Refused, "pod default/web: was applied already: delete it there first"))
	if !n.has("pod default/web i:1")() {
		t.Errorf("objects %v", n.have())
	}
	n.check(n.Delete(key(manifest.KindPod, "web")))
	if took := n.until("taken", n.has("pod default/web i:2 web.yaml", "pod default/x i:2 web.yaml")); took > soon {
		t.Errorf("taken after %v", took)
	}
}

// Two objects never share a record, and each name is one of a file.
func TestAppliedNames(t *testing.T) {
	long := strings.Repeat("a", 253)
	seen := map[string]manifest.Key{}
	for _, k := range []manifest.Key{
		{Kind: "Pod", Namespace: "a-b", Name: "c"}, {Kind: "Pod", Namespace: "a", Name: "b-c"}, {Kind: "Pod", Namespace: "a", Name: "b.c"},
		{Kind: "RuntimeClass", Name: "a"}, {Kind: "Pod", Namespace: "a", Name: long}, {Kind: "Pod", Namespace: "b", Name: long},
		{Kind: "Pod", Namespace: "a", Name: "../../x"},
	} {
		name := appliedName(k)
		if other, ok := seen[name]; ok || len(name) > 255 || filepath.Base(name) != name || strings.HasPrefix(name, ".") {
			t.Errorf("%v and %v: %q", k, other, name)
		}
		seen[name] = k
	}
	if got := appliedName(key("Pod", "web")); got != "pod_default_web.json" {
		t.Errorf("appliedName = %q", got)
	}
}

// A record under another object's name is not that object.
func TestAppliedRecords(t *testing.T) {
	n := newNode(t).start()
	if _, _, err := n.Apply("x.yaml", []byte(pod("a", "i:1")), "", false); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(n.book.appliedPath(key("Pod", "a")))
	n.check(err)
	n.check(os.WriteFile(n.book.appliedPath(key("Pod", "b")), data, 0o600))
	n.start()
	if !n.has("pod default/a i:1")() {
		t.Errorf("objects %v", n.have())
	}
	if _, err := os.Stat(filepath.Join(n.options.Store, "broken", "pod_default_b.json")); err != nil {
		t.Error(err)
	}
}
