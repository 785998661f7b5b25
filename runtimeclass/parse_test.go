package runtimeclass

import (
	"testing"

	"github.com/containerd/errdefs"
	nodev1 "k8s.io/api/node/v1"
)

const good = `# wasm guests
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata:
  name: wasm
handler: wasm
overhead:
  podFixed:
    memory: "12Mi"
    cpu: 5m
scheduling:
  nodeSelector:
    sunaba.example/wasm: "true"
  tolerations:
  - key: wasm
    operator: Exists
`

func TestParse(t *testing.T) {
	const head = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\n"
	for _, tt := range []struct {
		name, in string
		n        int
		want     string
	}{
		{"one", good, 1, ""},
		{"nothing", "", 0, ""},
		{"comments only", "# a\n---\n# b\n---\n\n", 0, ""},
		{"two", good + "---\n" + head + "metadata: {name: a.b}\nhandler: runc\n", 2, ""},
		{"separator with comment", "--- # first\n" + good + "--- # second\n" + head + "metadata: {name: b}\nhandler: runc\n", 2, ""},
		{"json", `{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"j"},"handler":"runc"}`, 1, ""},
		{"windows line ends", "apiVersion: node.k8s.io/v1\r\nkind: RuntimeClass\r\nmetadata: {name: w}\r\nhandler: w\r\n---\r\n", 1, ""},
		{"wrong kind", "apiVersion: v1\nkind: Pod\n", 0, `f.yaml:1: want kind RuntimeClass of node.k8s.io/v1, have kind "Pod" of "v1"`},
		{"old version", "apiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\n", 0, `of "node.k8s.io/v1beta1"`},
		{"no kind", "metadata: {name: a}\n", 0, `have kind "" of ""`},
		{"unknown field", head + "metadata: {name: a}\nhandler: a\nhandlr: b\n", 0, `f.yaml:1: unknown field "handlr"`},
		{"unknown nested field", head + "metadata: {name: a, nam: b}\nhandler: a\n", 0, `unknown field "metadata.nam"`},
		{"wrong case", head + "metadata: {name: a}\nHandler: a\n", 0, `unknown field "Handler"`},
		{"duplicate field", head + "metadata: {name: a}\nhandler: a\nhandler: b\n", 0, `"handler" already set in map`},
		{"not yaml", "a: [\n", 0, "f.yaml:1: "},
		{"line of a YAML error", good + "---\n" + head + "metadata: {name: a\nhandler: b: c\n", 0, "yaml: line 20: "},
		{"line of the second", good + "\n---\n\n# comment\n" + head + "metadata: {name: X}\nhandler: a\n", 0, "f.yaml:21: RuntimeClass \"X\": metadata.name: "},
		{"defined twice", good + "---\n" + good, 0, `f.yaml:19: RuntimeClass "wasm" is defined twice`},
		{"no name", head + "handler: a\n", 0, "metadata.name: "},
		{"namespace", head + "metadata: {name: a, namespace: b}\nhandler: a\n", 0, "metadata.namespace: a RuntimeClass has no namespace"},
		{"no handler", head + "metadata: {name: a}\n", 0, `handler ""`},
		{"handler with dot", head + "metadata: {name: a}\nhandler: a.b\n", 0, `handler "a.b"`},
		{"negative overhead", head + "metadata: {name: a}\nhandler: a\noverhead: {podFixed: {memory: -1Mi}}\n", 0, "overhead.podFixed[memory]: -1Mi is negative"},
		{"bad quantity", head + "metadata: {name: a}\nhandler: a\noverhead: {podFixed: {memory: lots}}\n", 0, "f.yaml:1: "},
		{"bad resource", head + "metadata: {name: a}\nhandler: a\noverhead: {podFixed: {\"a b\": 1}}\n", 0, "overhead.podFixed[a b]: "},
		{"bad selector", head + "metadata: {name: a}\nhandler: a\nscheduling: {nodeSelector: {k: \"a b\"}}\n", 0, "scheduling.nodeSelector[k]: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse("f.yaml", []byte(tt.in))
			checkError(t, err, tt.want)
			if len(got) != tt.n {
				t.Errorf("%d classes, want %d", len(got), tt.n)
			}
		})
	}
}

func TestParsedContent(t *testing.T) {
	classes, err := Parse("f.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	rc, err := Find(classes, "wasm")
	if err != nil {
		t.Fatal(err)
	}
	o := Overhead(&rc)
	if rc.Handler != "wasm" || o.Memory().Value() != 12<<20 || o.Cpu().MilliValue() != 5 {
		t.Fatalf("%+v", rc)
	}
	if len(Overhead(nil)) != 0 || len(Overhead(&nodev1.RuntimeClass{})) != 0 {
		t.Error("a class without overhead has some")
	}
	_, err = Find(classes, "kata")
	if !errdefs.IsNotFound(err) || err.Error() != `find RuntimeClass "kata" (there are: wasm): not found` {
		t.Errorf("Find: %v", err)
	}
}
