package components_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestText runs the components of testdata/wat: here as one module, under wasmtime as the several
// that they are. The first line of each says how it ends, or why it is refused here.
func TestText(t *testing.T) {
	all, dir := tools(t), t.TempDir()
	files, err := filepath.Glob("testdata/wat/*.wat")
	if err != nil || len(files) == 0 {
		t.Fatalf("no components: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SUNABA_COMPONENTS_CACHE", t.TempDir())
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".wat")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(string(text), "\n")
			component := filepath.Join(dir, name+".wasm")
			if err := all.FromText(t.Context(), file, component); err != nil {
				t.Fatal(err)
			}
			got := row{}.play(t, self, inPodFace, component)
			if why, refused := strings.CutPrefix(first, ";; refused: "); refused {
				if got.code != 128 || !strings.Contains(got.stderr, why) {
					t.Errorf("exit code %d, %q, and it should be refused for %q", got.code, got.stderr, why)
				}
				return
			}
			want, err := strconv.Atoi(strings.TrimPrefix(first, ";; exit "))
			if err != nil {
				t.Fatal(err)
			}
			if got.code != want {
				t.Errorf("exit code %d, want %d: %s", got.code, want, got.stderr)
			}
			codes := []int{want}
			if want == 134 {
				codes = append(codes, 1) // of a trap while it is instantiated, and where the host ends it
			}
			if there := (row{}).play(t, all.Wasmtime(), "run", component); !slices.Contains(codes, there.code) {
				t.Errorf("exit code %d under wasmtime, want %v: %s", there.code, codes, there.stderr)
			}
		})
	}
}
