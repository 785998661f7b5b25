package images

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/variant"
)

func TestDamagedStoreHeals(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	appIndex(t, r, "app", "v1", "1")
	ref := r.host + "/app:v1"
	img := s.mustPull(ref, "")
	wasm := s.mustFind(ref, "wasm")
	damage := map[string]func() error{
		"manifest": func() error { return os.Truncate(s.disk.Content.Path(img.Manifest.Digest), 3) },
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
	for name, handlers := range map[string]variant.Handlers{
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

// A machine that went down with the store open: everything is read, and what is
// damaged is fetched again, without anybody asking.
func TestCheckAfterPowerLoss(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	appIndex(t, r, "app", "v1", "1")
	ref := r.host + "/app:v1"
	img := s.mustPull(ref, "")
	wasm := s.mustFind(ref, "wasm")
	file := filepath.Join(s.root, "open")
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("nothing says that the store is open: %v", err)
	}
	damage := func() {
		t.Helper()
		s.close()
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Fatalf("the store is closed, and still said to be open (%v)", err)
		}
		apps, err := filepath.Glob(filepath.Join(s.root, "layers/snapshots/*/fs/app*"))
		if err != nil || len(apps) == 0 {
			t.Fatalf("%q, %v", apps, err)
		}
		for _, app := range apps {
			info, err := os.Stat(app)
			if err == nil { // the file is there, and its blocks are zeros
				err = os.WriteFile(app, make([]byte, info.Size()), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	damage()
	s.open()
	s.background.Wait()
	s.mustFind(img.ID, "") // the store was closed: nobody looks
	damage()
	if err := os.WriteFile(file, []byte("another boot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.open()
	s.background.Wait()
	for _, id := range []string{img.ID, wasm.ID} {
		s.mustFind(id, "")
	}
	if report, err := s.Check(t.Context(), false); err != nil || len(report.Damaged) != 0 {
		t.Errorf("Check: %+v, %v", report, err)
	}
	equal(t, "tree", s.tree("c", img), []string{"app=host 1"})
	if err := s.RemoveRootFS(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	// Without the registry it is dropped, once, and not tried again.
	damage()
	if err := os.WriteFile(file, []byte("another boot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.server.Close()
	s.options.Registry.Retries = -1
	s.open()
	s.background.Wait()
	if list, err := s.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%d images, %v", len(list), err)
	}
	if b, l := s.blobs(), s.layerDirs(); b != 0 || l != 0 {
		t.Errorf("%d blobs and %d layers left", b, l)
	}
}

// Damaged layers that a container has stay with it; a pull puts others in their place.
func TestRepairBesideAContainer(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}), gzipLayer(t, file{name: "b", content: "2"}))
	ref := r.host + "/app:v1"
	img := s.mustPull(ref, "")
	if _, err := s.PrepareRootFS(t.Context(), "running", img); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(s.root, "layers/snapshots/*/fs/a"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte("9"), 0o644); err != nil {
		t.Fatal(err)
	}
	report, err := s.Check(t.Context(), true)
	if err != nil || len(report.Damaged) != 1 || !report.Damaged[0].Repaired || !strings.Contains(report.Damaged[0].What[0], "is damaged") {
		t.Fatalf("Check: %+v, %v", report, err)
	}
	equal(t, "tree", s.tree("new", s.mustFind(ref, "")), []string{"a=1", "b=2"})
	for _, key := range []string{"running", "new"} {
		if err := s.RemoveRootFS(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	// Where a layer's folder has gone altogether, the image is dropped when it is used.
	if err := os.RemoveAll(filepath.Dir(filepath.Dir(files[0]))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PrepareRootFS(t.Context(), "c", img); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "pull it again") {
		t.Errorf("PrepareRootFS: %v", err)
	}
	equal(t, "tree", s.tree("c", s.mustPull(ref, "")), []string{"a=1", "b=2"})
}
