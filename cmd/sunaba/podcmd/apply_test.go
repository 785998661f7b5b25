package podcmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const webManifest = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: app
    image: registry.example/web:1
`

// The manifests of a folder are applied one by one, in their order; what is none of theirs is left
// out, and no pipe in it holds anything up.
func TestApplyOfAFolder(t *testing.T) {
	n := newNode(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yaml": "b", "a.json": "a", "c.yml": "c", ".hidden.yaml": "no", "notes.txt": "no", "d.yaml~": "no"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "e.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.run(t.Context(), "", "apply", "-n", "prod", "-f", dir); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range n.agent.applied {
		got = append(got, filepath.Base(r.File)+"="+string(r.Data)+" "+r.Namespace)
	}
	if strings.Join(got, ", ") != "a.json=a prod, b.yaml=b prod, c.yml=c prod" {
		t.Errorf("applied %q", got)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.run(t.Context(), "", "apply", "-f", dir); err == nil || !strings.Contains(err.Error(), "pipe.yaml") {
		t.Errorf("a pipe: %v", err)
	}
	if _, _, err := n.run(t.Context(), "", "apply", "-f", t.TempDir()); err == nil || !strings.Contains(err.Error(), "has no *.yaml") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, _, err := n.run(t.Context(), strings.Repeat("#", maxManifest+1), "apply", "-f", "-"); err == nil || !strings.Contains(err.Error(), "longer than 10485760 bytes") {
		t.Errorf("too long: %v", err)
	}
}

// --dry-run=client needs no server.
func TestApplyDryRunClient(t *testing.T) {
	n := newNode(t)
	out, _, err := n.run(t.Context(), webManifest, "apply", "--dry-run=client", "-f", "-", "--state", "/none")
	if err != nil || out != "pod/web created (dry run)\n" {
		t.Errorf("%v, %q", err, out)
	}
	if _, _, err = n.run(t.Context(), strings.Replace(webManifest, "image:", "imagePolicy:", 1), "apply", "--dry-run=client", "-f", "-"); err == nil || !strings.Contains(err.Error(), "imagePolicy") {
		t.Errorf("an unknown field: %v", err)
	}
	other := strings.Replace(webManifest, "name: web", "name: web\n  namespace: prod", 1)
	if _, _, err = n.run(t.Context(), other, "apply", "--dry-run=client", "-n", "test", "-f", "-"); err == nil || !strings.Contains(err.Error(), "namespace") {
		t.Errorf("another namespace: %v", err)
	}
	if len(n.agent.applied) > 0 {
		t.Errorf("the server was asked: %v", n.agent.applied)
	}
}
