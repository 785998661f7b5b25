package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
)

const web = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app, image: \"a:1\"}]}\n"

// keys parses a file and returns what it holds, each with document and line.
func keys(t *testing.T, data string, o Options) (got, notes []string) {
	t.Helper()
	objects, notes, err := Parse("f.yaml", []byte(data), o)
	if err != nil {
		t.Fatalf("parse: %v\n%s", err, data)
	}
	for _, object := range objects {
		if object.File != "f.yaml" || object.Value.GetName() != object.Name || object.Value.GetNamespace() != object.Namespace {
			t.Errorf("object %+v does not agree with its value", object.Key)
		}
		got = append(got, fmt.Sprintf("%s %d:%d", object.Key, object.Document, object.Line))
	}
	return got, notes
}

// B.2: any number of documents, Lists are opened, empty documents are skipped, JSON is YAML.
func TestContents(t *testing.T) {
	configMap := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: ns}\ndata: {a: \"1\"}\n"
	for name, c := range map[string]struct {
		data string
		want []string
	}{
		"nothing":         {"# only a comment\n---\n", nil},
		"one":             {web, []string{"pod default/web 1:1"}},
		"byte order mark": {"\uFEFF" + web, []string{"pod default/web 1:1"}},
		"several": {"---\n# a\n---\n" + configMap + "--- # comment\n\n" + web,
			[]string{"configmap ns/c 1:4", "pod default/web 2:10"}},
		"list": {"apiVersion: v1\nkind: List\nmetadata: {resourceVersion: \"\"}\nitems:\n- " +
			strings.ReplaceAll(strings.TrimSpace(web), "\n", "\n  ") + "\n- " + strings.ReplaceAll(strings.TrimSpace(configMap), "\n", "\n  ") + "\n",
			[]string{"pod default/web 1:1", "configmap ns/c 1:1"}},
		"json": {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"\ud83d\ude00 \/"}}`,
			[]string{"configmap default/c 1:1"}},
		"class": {"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: wasm}\nhandler: wasm\n",
			[]string{"runtimeclass wasm 1:1"}},
		"ended":   {web + "...\n# end\n", []string{"pod default/web 1:1"}},
		"aliases": {strings.Replace(configMap, "{a: \"1\"}", "{a: &x \"1\", b: *x}", 1), []string{"configmap ns/c 1:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, notes := keys(t, c.data, Options{})
			if !slices.Equal(got, c.want) || len(notes) > 0 {
				t.Errorf("objects %q, notes %q; want %q and no notes", got, notes, c.want)
			}
		})
	}
}

func TestSurrogatesOfJSON(t *testing.T) {
	objects, _, err := Parse("f.json", []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"\ud83d\ude00"}}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := objects[0].Value.(*corev1.ConfigMap).Data["a"]; got != "😀" {
		t.Errorf("a is %q", got)
	}
}

func TestNamespaceOption(t *testing.T) {
	got, _ := keys(t, web+"---\n"+strings.Replace(web, "name: web", "name: web, namespace: own", 1), Options{Namespace: "shop"})
	if want := []string{"pod shop/web 1:1", "pod own/web 2:6"}; !slices.Equal(got, want) {
		t.Errorf("objects %q, want %q", got, want)
	}
}

// refused parses a file that must be refused and returns the error's text.
func refused(t *testing.T, data string, o Options) string {
	t.Helper()
	objects, notes, err := Parse("f.yaml", []byte(data), o)
	if err == nil {
		t.Fatalf("%d objects, want an error:\n%s", len(objects), data)
	}
	if !errdefs.IsInvalidArgument(err) {
		t.Errorf("error %v is of another class than ErrInvalidArgument", err)
	}
	if objects != nil || notes != nil {
		t.Errorf("a refused file gave %d objects and notes %q", len(objects), notes)
	}
	return err.Error()
}

// B.2: a file is taken whole or not at all; the error has file, document, object and field.
func TestRefusedFiles(t *testing.T) {
	list := "apiVersion: v1\nkind: List\nitems:\n"
	for name, c := range map[string]struct{ data, want string }{
		"second document": {web + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {containers: [{name: app}]}\n",
			`f.yaml: document 2, pod default/b: spec.containers[0].image: is required`},
		"two documents": {strings.Replace(web, "web", "UP", 1) + "---\n" + strings.Replace(web, "web", "LOW", 1),
			"f.yaml: document 1, pod default/UP: metadata.name: \"UP\": a lowercase RFC 1123 subdomain"},
		"item of a list": {list + "- " + strings.ReplaceAll(strings.Replace(web, "app", "APP", 1), "\n", "\n  ") + "\n",
			`f.yaml: document 1, items[0], pod default/web: spec.containers[0].name: "APP": a lowercase RFC 1123 label`},
		"unknown field": {strings.Replace(web, "image", "imagee", 1),
			`f.yaml: document 1, pod default/web: unknown field "spec.containers[0].imagee"; did you mean "image"? (line 4)`},
		"wrong case": {strings.Replace(web, "image", "Image", 1),
			`f.yaml: document 1, pod default/web: unknown field "spec.containers[0].Image"; did you mean "image"? (line 4)`},
		"double field": {strings.Replace(web, "name: app", "name: app, name: b", 1),
			`f.yaml: document 1: yaml: unmarshal errors: line 4: key "name" already set in map`},
		"double field of JSON": {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","name":"d"}}`,
			`f.yaml: document 1, configmap default/d: duplicate field "metadata.name"`},
		"double key of JSON": {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1","a":"2"}}`,
			`f.yaml: document 1, configmap default/c: duplicate field "data.a"`},
		"wrong type": {strings.Replace(web, "\"a:1\"", "1", 1),
			`f.yaml: document 1, pod default/web: spec.containers.image: a number cannot stand here`},
		"wrong type in a volume": {web[:len(web)-2] + ", volumes: [{name: v, hostPath: {path: y}}]}\n",
			`f.yaml: document 1, pod default/web: spec.volumes.hostPath.path: a bool cannot stand here; write it in quotes`},
		"broken": {"kind: [\n", "f.yaml: document 1: yaml: line 1: did not find expected node content"},
		"text":   {"hello\n", "f.yaml: document 1: is a string, not an object: write apiVersion, kind and metadata"},
		"array":  {"[1]\n", "f.yaml: document 1: is an array, not an object: write apiVersion, kind and metadata"},
		"array in a field": {strings.Replace(web, "\"a:1\"", "[1]", 1),
			`f.yaml: document 1, pod default/web: spec.containers.image: an array cannot stand here`},
		"no kind":           {"apiVersion: v1\n", "f.yaml: document 1: kind: is required"},
		"no version":        {"kind: Pod\nmetadata: {name: a}\n", "f.yaml: document 1, pod default/a: apiVersion: is required"},
		"wrong version":     {"kind: Pod\napiVersion: v2\nmetadata: {name: a}\n", `apiVersion: "v2": is not known for this kind; write v1`},
		"twice":             {web + "---\n" + web, "f.yaml: document 2, pod default/web: stands in document 1 already"},
		"list in a list":    {list + "- {apiVersion: v1, kind: List, items: []}\n", "f.yaml: document 1, items[0], list: is in another List"},
		"unknown in a list": {list + "extra: 1\n", `f.yaml: document 1, list: unknown field "extra"`},
		"null in a list":    {list + "- null\n", "kind: is required"},
		"no UTF-8":          {"a: \xff\n", "f.yaml: is not UTF-8"},
		"text after ---":    {web + "--- {kind: Pod}\n", "f.yaml: document 1: line 5: text after ---: write it on the next line"},
		"text after ...":    {web + "...\nkind: Pod\n", "f.yaml: document 1: line 6: text after the ... of line 5: write --- between documents"},
		"name": {strings.Replace(web, "name: web", "generateName: web-", 1),
			"f.yaml: document 1, pod default/web-: metadata.name: is required"},
		"class": {"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: wasm}\nhandler: UP\n",
			`f.yaml: document 1, runtimeclass wasm: handler "UP": a lowercase RFC 1123 label`},
		"class with a namespace": {"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: wasm, namespace: x}\nhandler: up\n",
			`metadata.namespace: a RuntimeClass has no namespace`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refused(t, c.data, Options{}); !strings.HasPrefix(got, "f.yaml: ") || !strings.Contains(got, c.want) {
				t.Errorf("error %q, want %q", got, c.want)
			}
		})
	}
}

// One line for each bad document.
func TestEveryBadDocumentIsTold(t *testing.T) {
	bad := strings.Replace(web, "name: app", "name: APP", 1)
	got := refused(t, bad+"---\n"+web+"---\n"+strings.Replace(bad, "web", "b", 1), Options{})
	lines := strings.Split(got, "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "f.yaml: document 1, pod default/web: ") ||
		!strings.HasPrefix(lines[1], "f.yaml: document 3, pod default/b: ") {
		t.Errorf("error %q", got)
	}
}

// Strangers write manifests.
func TestBounds(t *testing.T) {
	configMap := func(i int) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\n", i)
	}
	var many strings.Builder
	for i := range maxObjects + 1 {
		many.WriteString(fmt.Sprintf("- {apiVersion: v1, kind: ConfigMap, metadata: {name: c%d}}\n", i))
	}
	for name, c := range map[string]struct{ data, want string }{
		"size":      {strings.Repeat("#", MaxFile+1), "is larger than 10485760 bytes"},
		"documents": {strings.Repeat("---\n", maxDocuments+2), "has more than 1000 documents"},
		"objects":   {"apiVersion: v1\nkind: List\nitems:\n" + many.String(), "has more than 1000 objects"},
		"depth":     {"a: " + strings.Repeat("[", 100) + strings.Repeat("]", 100), "is more than 64 levels deep"},
		"depth of JSON": {`{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}",
			"is more than 64 levels deep"},
		"object": {strings.Replace(web, "name: app", "name: app, workingDir: "+strings.Repeat("a", maxObject), 1), "has more than 3145728 bytes"},
		"aliases": {"a: &a \"" + strings.Repeat("x", 1<<20) + "\"\nb: [" + strings.Repeat("*a, ", 50) + "]\n",
			"is larger than 10485760 bytes with its aliases written out"},
		"aliases of aliases": {"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n" +
			"g: [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\n", "excessive aliasing"},
		"alias of itself": {"a: &a [*a]\n", "anchor 'a' value contains itself"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refused(t, c.data, Options{}); !strings.Contains(got, c.want) || len(got) > 4096 {
				t.Errorf("error %.200q, want %q", got, c.want)
			}
		})
	}
	if got, _ := keys(t, configMap(1)+configMap(2), Options{}); len(got) != 2 {
		t.Errorf("objects %q", got)
	}
	t.Run("problems", func(t *testing.T) {
		var containers strings.Builder
		for range 30 {
			containers.WriteString("  - {name: \"" + strings.Repeat("X", 1000) + "\", image: a}\n")
		}
		got := refused(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n"+containers.String(), Options{})
		if !strings.HasSuffix(got, "more") || len(got) > 8192 {
			t.Errorf("error of %d bytes: %.300q", len(got), got)
		}
	})
}

// B.3: kinds that are not taken.
func TestKinds(t *testing.T) {
	object := func(version, kind string) string {
		return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: x, labels: {a: b}}\nspec: {anything: 1}\n", version, kind)
	}
	const noEffect = "this kind has no effect here"
	for _, c := range []struct{ version, kind, want string }{
		{"v1", "Service", "f.yaml: document 1, service default/x: " + noEffect},
		{"networking.k8s.io/v1", "Ingress", noEffect},
		{"networking.k8s.io/v1", "NetworkPolicy", noEffect + ": restrict the traffic by the node's firewall; or put it on [pods] ignore_kinds"},
		{"v1", "LimitRange", noEffect + "; put it on [pods] ignore_kinds to ignore it"},
		{"v1", "ResourceQuota", noEffect},
		{"example.com/v1", "Thing", "f.yaml: document 1, thing default/x: " + noEffect + "; put it on [pods] ignore_kinds to ignore it"},
		{"batch/v1", "Job", noEffect + ": write a Pod with restartPolicy OnFailure or Never"},
		{"batch/v1", "CronJob", noEffect},
		{"apps/v1", "Deployment", noEffect},
		{"apps/v1", "DaemonSet", noEffect},
		{"apps/v1", "StatefulSet", noEffect},
		{"apps/v1", "ReplicaSet", noEffect}, // DP6
		{"scheduling.k8s.io/v1", "PriorityClass", "priorityclass x: " + noEffect},
		{"v1", "PersistentVolume", noEffect},
		{"v1", "PodList", "write a List of v1"},
		{"extensions/v1beta1", "Deployment", `apiVersion: "extensions/v1beta1": is deprecated; it was replaced by apps/v1`},
		{"batch/v1beta1", "CronJob", `apiVersion: "batch/v1beta1": is deprecated; it was replaced by batch/v1`},
		{"node.k8s.io/v1beta1", "RuntimeClass", `is deprecated; it was replaced by node.k8s.io/v1`},
		{"policy/v1beta1", "PodDisruptionBudget", `is deprecated; it was replaced by policy/v1`},
		{"example.com/v1", "Pod", noEffect},
	} {
		if got := refused(t, object(c.version, c.kind), Options{IgnoreKinds: []string{"Other"}}); !strings.Contains(got, c.want) {
			t.Errorf("%s %s: error %q, want %q", c.version, c.kind, got, c.want)
		}
		// A kind that is ignored is skipped with a note, whatever it holds.
		got, notes := keys(t, object(c.version, c.kind)+"---\n"+web, Options{IgnoreKinds: []string{c.kind, "Pod"}})
		if len(got) > 0 || len(notes) != 2 || !strings.Contains(notes[0], "x: is ignored: its kind is on [pods] ignore_kinds") {
			t.Errorf("%s ignored: objects %q, notes %q", c.kind, got, notes)
		}
	}
	// EX11: a PodDisruptionBudget limits nothing.
	for _, c := range []struct{ version, kind, name string }{
		{"v1", "Namespace", "namespace x"}, {"v1", "ServiceAccount", "serviceaccount default/x"},
		{"policy/v1", "PodDisruptionBudget", "poddisruptionbudget default/x"},
	} {
		got, notes := keys(t, object(c.version, c.kind), Options{})
		want := []string{"f.yaml: document 1, " + c.name + ": is ignored: this kind has no effect on one node"}
		if len(got) > 0 || !slices.Equal(notes, want) {
			t.Errorf("%s: objects %q, notes %q, want %q", c.kind, got, notes, want)
		}
	}
}

// The hash is of the object, not of its form.
func TestHash(t *testing.T) {
	hash := func(data string) string {
		objects, _, err := Parse("f", []byte(data), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return objects[0].Hash()
	}
	plain := hash(web)
	if len(plain) != 64 {
		t.Errorf("hash %q", plain)
	}
	for name, same := range map[string]string{
		"order":    "kind: Pod\nspec:\n  containers:\n  - image: a:1 # comment\n    name: app\napiVersion: v1\nmetadata: {name: web}\n",
		"json":     `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"a:1"}]}}`,
		"defaults": web[:len(web)-2] + ", restartPolicy: Always, terminationGracePeriodSeconds: 30}\n",
		"printed": strings.Replace(web, "name: web", "name: web, namespace: default, uid: \"1\", creationTimestamp: \"2026-01-01T00:00:00Z\","+
			" annotations: {kubernetes.io/config.hash: \"1\", io.sunaba.agent: x}", 1) + "status: {phase: Running}\n",
	} {
		if got := hash(same); got != plain {
			t.Errorf("%s: another hash", name)
		}
	}
	if hash(strings.Replace(web, "a:1", "a:2", 1)) == plain {
		t.Error("another image has the same hash")
	}
	half := func(q string) string {
		return hash(strings.Replace(web, "\"a:1\"", "\"a:1\", resources: {requests: {cpu: "+q+"}}", 1))
	}
	if half("500m") != half("\"0.5\"") || half("500m") == half("501m") {
		t.Error("amounts are not compared by value")
	}
}

func TestErrorsKeepTheirClass(t *testing.T) {
	_, _, err := Parse("f", []byte("{"), Options{})
	if !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("error %v", err)
	}
}
