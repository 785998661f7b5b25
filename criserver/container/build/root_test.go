package build

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/criserver/container/program"
)

// readied notes what is made ready.
type readied []string

func (r *readied) Ready(_ context.Context, path, digest string) { *r = append(*r, path+" "+digest) }

// The module among an image's files is compiled before the container's start, from where its links
// lead within the image.
func TestProgramIsMadeReady(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "m.wasm"), []byte("\x00asm\x01\x00\x00\x00"), 0o755)
	}
	if err == nil {
		err = os.Mkdir(filepath.Join(root, "bin"), 0o755)
	}
	if err == nil {
		err = os.Symlink("/bin/../m.wasm", filepath.Join(root, "run"))
	}
	if err != nil {
		t.Fatal(err)
	}
	var made readied
	b := &builder{Maker: New(Options{Modules: &made})}
	ready := func(names ...string) {
		t.Helper()
		if p, err := program.First(root, names); err == nil {
			b.readyProgram(t.Context(), filepath.Join(root, p.Path))
		}
	}
	ready("/run") // an image whose files have no module that is known
	b.Image.Program = digest.FromString("m")
	ready("/none")
	ready("/none/run", "/run")
	if want := filepath.Join(root, "m.wasm") + " " + b.Image.Program.String(); len(made) != 1 || made[0] != want {
		t.Errorf("made ready: %q, want %q", made, want)
	}
}
