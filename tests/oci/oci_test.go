package oci

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/sunaba-project/sunaba/tests/binaries"
)

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestImagesAreDeterministicAndValid(t *testing.T) {
	make := map[string]func() (v1.Image, error){
		"busybox":  func() (v1.Image, error) { return Busybox(LinuxAMD64, v1.Config{}) },
		"artifact": func() (v1.Image, error) { return Artifact([]byte("\x00asm\x01\x00\x00\x00")) },
		"symlink": func() (v1.Image, error) {
			layer, err := Layer(Symlink("escape", "/etc/hostname"))
			if err != nil {
				return nil, err
			}
			return Image(Wasip1, v1.Config{}, layer)
		},
	}
	for name, build := range make {
		one, two := must[v1.Image](t)(build()), must[v1.Image](t)(build())
		if a, b := must[v1.Hash](t)(one.Digest()), must[v1.Hash](t)(two.Digest()); a != b {
			t.Errorf("%s: built twice: %s and %s", name, a, b)
		}
		if name == "artifact" {
			continue // validate knows only images of root file systems
		}
		if err := validate.Image(one); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIndexHoldsProvenanceLast(t *testing.T) {
	image := must[v1.Image](t)(Busybox(LinuxAMD64, v1.Config{}))
	index := must[v1.ImageIndex](t)(Index(Variant{LinuxAMD64, image}))
	manifest := must[*v1.IndexManifest](t)(index.IndexManifest())
	if len(manifest.Manifests) != 2 {
		t.Fatalf("%d entries, want the image and its attestation", len(manifest.Manifests))
	}
	if last := manifest.Manifests[1].Platform; !last.Equals(Unknown) {
		t.Errorf("the last entry is for %s, want %s", last, Unknown.String())
	}
}

func TestRegistryServesWhatWasPushed(t *testing.T) {
	registry := must[*Registry](t)(Serve("127.0.0.1:0"))
	defer registry.Close()
	image := must[v1.Image](t)(Artifact([]byte("\x00asm\x01\x00\x00\x00")))
	ref := must[string](t)(registry.Push(t.Context(), "a/b:c", image))
	if want := registry.Host + "/a/b:c"; ref != want {
		t.Errorf("reference %q, want %q", ref, want)
	}
	response := must[*http.Response](t)(http.Get("http://" + registry.Host + "/v2/a/b/manifests/c"))
	defer response.Body.Close()
	body := must[[]byte](t)(io.ReadAll(response.Body))
	if response.StatusCode != http.StatusOK || !strings.Contains(string(body), string(WasmConfig)) {
		t.Errorf("manifest: %s\n%s", response.Status, body)
	}
	if got := registry.Requests(); len(got) != 1 || got[0] != "GET /v2/a/b/manifests/c" {
		t.Errorf("requests %q", got)
	}
}

func TestBuildC(t *testing.T) {
	file := must[string](t)(filepath.Abs("../../examples/c/guest.c"))
	module := must[[]byte](t)(BuildC(t.Context(), file))
	if !strings.HasPrefix(string(module), "\x00asm\x01") {
		t.Errorf("no WebAssembly module: % x", module[:8])
	}
}

// A guest of the project is built once in a run, and what lies elsewhere each time.
func TestGuestIsBuiltOnce(t *testing.T) {
	made := t.TempDir()
	t.Setenv(binaries.SharedVariable, made)
	const source = "../../examples/c/guest.c"
	built, err := BuildC(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(made, "guests", "*[0-9a-f]"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %q, %v", kept, err)
	}
	if data, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(data, built) {
		t.Errorf("%d bytes are kept of %d, %v", len(data), len(built), err)
	}
	if err := os.WriteFile(kept[0], []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := BuildC(t.Context(), source); err != nil || string(again) != "kept" {
		t.Errorf("built again: %d bytes, %v", len(again), err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "guest.c")
	for _, program := range [][]byte{text, []byte("int main(void) { return 1; }\n")} {
		if err := os.WriteFile(copied, program, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := BuildC(t.Context(), copied); err != nil || bytes.Equal(got, built) != bytes.Equal(program, text) {
			t.Errorf("%d bytes of source make %d, %v", len(program), len(got), err)
		}
	}
}
