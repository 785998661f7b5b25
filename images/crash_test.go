package images

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestDamagedStoreHeals(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	appIndex(t, r, "app", "v1", "1")
	ref := r.host + "/app:v1"
	img := s.mustPull(ref, "")
	wasm := s.mustFind(ref, "wasm")
	damage := map[string]func() error{
		"manifest": func() error { return os.Truncate(s.content.Path(img.Manifest.Digest), 3) },
		"layer": func() error {
			dirs, err := filepath.Glob(filepath.Join(s.root, "layers/snapshots/*/fs/app"))
			if err != nil || len(dirs) != 1 {
				return fmt.Errorf("layers %q, %w", dirs, err)
			}
			return os.RemoveAll(filepath.Dir(dirs[0]))
		},
	}
	for name, do := range damage {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s.open()
		if _, err := s.Find(t.Context(), img.ID, ""); !errdefs.IsNotFound(err) {
			t.Errorf("%s: the damaged image is still there: %v", name, err)
		}
		if got := s.mustFind(ref, ""); got.ID != wasm.ID {
			t.Errorf("%s: found %s", name, got.ID)
		}
		if got := s.mustPull(ref, ""); got.ID != img.ID {
			t.Errorf("%s: pulled %s", name, got.ID)
		}
		s.check()
	}
	equal(t, "tree", s.tree("c", img), []string{"app=host 1"})
}

func TestOpenErrors(t *testing.T) {
	s := newTestService(t)
	if _, err := Open(s.options); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second Open: %v", err)
	}
	p := parsePlatforms(t, hostPlatform)
	for name, handlers := range map[string][]HandlerPlatforms{
		"none":         nil,
		"no default":   {{Name: "a", Platforms: p}},
		"two defaults": {{Name: "a", Platforms: p, Default: true}, {Name: "b", Platforms: p, Default: true}},
		"twice":        {{Name: "a", Platforms: p, Default: true}, {Name: "a", Platforms: p}},
		"no name":      {{Platforms: p, Default: true}},
		"no platforms": {{Name: "a", Default: true}},
	} {
		if _, err := Open(Options{Root: t.TempDir(), Handlers: handlers}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
