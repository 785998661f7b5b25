package classes

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sunaba-project/sunaba/cmd/sunaba/output"
	"github.com/sunaba-project/sunaba/criserver/server"
	"github.com/sunaba-project/sunaba/criserver/stats"
)

const head = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\n"

// write puts files below a new folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRead(t *testing.T) {
	dir := write(t, map[string]string{
		"d/b.yaml":      head + "metadata: {name: b}\nhandler: wasm\n",
		"d/a.yml":       head + "metadata: {name: a}\nhandler: wasm\n---\n" + head + "metadata: {name: a2}\nhandler: runc\n",
		"d/c.json":      `{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"c"},"handler":"runc"}`,
		"d/pod.yaml":    "apiVersion: v1\nkind: Pod\n",
		"pod.yaml":      "apiVersion: v1\nkind: Pod\n",
		"d/notes.txt":   "not a manifest",
		"d/.hidden.yml": "not: one\n",
		"d/sub/e.yaml":  "not: read\n",
		"one":           head + "metadata: {name: one}\nhandler: runc\n",
		"twin.yaml":     head + "\n\nmetadata: {name: a}\nhandler: runc\n",
		"bad/x.yaml":    "# comment\n" + head + "metadata: {name: x}\nhandler: a.b\n",
	})
	got, err := Read([]string{filepath.Join(dir, "d"), filepath.Join(dir, "one")})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, rc := range got {
		names = append(names, rc.Name)
	}
	if strings.Join(names, " ") != "a a2 b c one" {
		t.Errorf("classes %q", names)
	}
	for _, tt := range []struct {
		paths []string
		is    func(error) bool
		want  string
	}{
		{[]string{"d", "twin.yaml"}, errdefs.IsInvalidArgument, `twin.yaml: RuntimeClass "a" is defined in ` + filepath.Join(dir, "d/a.yml") + " too"},
		{[]string{"bad"}, errdefs.IsInvalidArgument, `bad/x.yaml:2: RuntimeClass "x": handler "a.b"`},
		{[]string{"pod.yaml"}, errdefs.IsInvalidArgument, `pod.yaml:1: want kind RuntimeClass`},
		{[]string{"none"}, func(err error) bool { return errors.Is(err, fs.ErrNotExist) }, "read RuntimeClasses"},
	} {
		for i := range tt.paths {
			tt.paths[i] = filepath.Join(dir, tt.paths[i])
		}
		_, err := Read(tt.paths)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !tt.is(err) {
			t.Errorf("%q: error %v, want %q", tt.paths, err, tt.want)
		}
	}
	if got, err := Read(nil); err != nil || len(got) != 0 {
		t.Errorf("of nothing: %v, %v", got, err)
	}
}

const (
	light = head + "metadata: {name: light}\nhandler: wasm\noverhead: {podFixed: {memory: 8Mi, cpu: 5m}}\n" +
		"scheduling: {nodeSelector: {wasm: \"yes\"}, tolerations: [{key: wasm, operator: Exists}]}\n"
	web = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  runtimeClassName: light\n  containers:\n" +
		"  - {name: c, image: i, resources: {limits: {memory: 32Mi, cpu: 100m}}}\n"
)

func TestAdmit(t *testing.T) {
	var out, notes bytes.Buffer
	second := strings.Replace(web, "name: web", "name: two", 1)
	if err := Admit(&out, &notes, "pod.yaml", []byte(web+"---\n"+light+"---\n"+second), nil); err != nil {
		t.Fatal(err)
	}
	texts := strings.Split(out.String(), "---\n")
	if len(texts) != 2 {
		t.Fatalf("%d documents, want 2:\n%s", len(texts), out.String())
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(texts[0]), &pod); err != nil {
		t.Fatal(err)
	}
	if pod.Name != "web" || pod.Spec.Overhead.Memory().String() != "8Mi" || pod.Spec.NodeSelector["wasm"] != "yes" || len(pod.Spec.Tolerations) != 1 {
		t.Errorf("admitted:\n%s", texts[0])
	}
	if pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "100m" {
		t.Errorf("requests are not those of the limits:\n%s", texts[0])
	}
	if strings.Contains(out.String(), "status") || strings.Contains(out.String(), "creationTimestamp") {
		t.Errorf("it has what the API server fills in:\n%s", out.String())
	}
	for _, want := range []string{
		`pod "web": class "light", handler "wasm", overhead cpu 5m, memory 8Mi`, "effective requests: cpu 105m, memory 40Mi",
		"effective limits: cpu 105m, memory 40Mi", "quality of service: Guaranteed", `pod "two"`,
	} {
		if !strings.Contains(notes.String(), want) {
			t.Errorf("%q is not in\n%s", want, notes.String())
		}
	}
}

func TestAdmitRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"no pod", light, "p.yaml: no Pod in it"},
		{"another kind", "apiVersion: v1\nkind: Service\n", `p.yaml:1: kind "Service" of "v1"`},
		{"unknown field", strings.Replace(web, "image: i", "imge: i", 1), `p.yaml:1: unknown field "spec.containers[0].imge"`},
		{"unknown class", web, `p.yaml:1: pod "web": spec.runtimeClassName: find RuntimeClass "light" (no RuntimeClass is known)`},
		{"second is refused", light + "---\n" + web + "---\n" + strings.Replace(web, "spec:\n", "spec:\n  overhead: {memory: 1Mi}\n", 1),
			`p.yaml:16: pod "web": spec.overhead: the pod has memory 1Mi and RuntimeClass "light" declares cpu 5m, memory 8Mi`},
		{"class twice", light + "---\n" + light + "---\n" + web, `p.yaml:8: RuntimeClass "light" is defined twice`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, notes bytes.Buffer
			err := Admit(&out, &notes, "p.yaml", []byte(tt.text), nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if out.Len() > 0 {
				t.Errorf("printed in spite of it:\n%s", out.String())
			}
		})
	}
}

// What nobody could be asked for is not said to be nothing.
func TestPrintWithAndWithoutAServer(t *testing.T) {
	handlers := []Handler{{Name: "runc", Type: "oci", ShimScope: "node", Default: true}}
	for name, c := range map[string]struct {
		pods []Pod
		want string
	}{
		"a server without pods": {[]Pod{}, "no pods"},
		"no server":             {nil, "-"},
		"a pod": {[]Pod{{Info: server.PodInfo{Handler: "runc", Overhead: server.PodOverhead{Measured: stats.Overhead{MemoryBytes: 3 << 20}}}}},
			"memory 3.0 MiB (1 pod)"},
	} {
		var out strings.Builder
		if err := Print(&out, Rows(nil, handlers, c.pods), output.Table); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 || !strings.HasSuffix(lines[1], "  "+c.want) || !strings.Contains(lines[1], "per node") {
			t.Errorf("%s: %q, want a line that ends with %q", name, lines, c.want)
		}
	}
}
