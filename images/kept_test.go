package images

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// archiveOf returns an archive of an image that a registry has.
func archiveOf(t *testing.T, ref string) string {
	t.Helper()
	s := newTestService(t)
	s.options.KeepLayers = true
	s.close()
	s.open()
	s.mustPull(ref, "")
	return s.export(ref)
}

func (ts *testService) mustImport(path string) {
	ts.t.Helper()
	if _, err := ts.Import(ts.t.Context(), ImportRequest{Path: path}); err != nil {
		ts.t.Fatal(err)
	}
}

// without opens the service anew so that it gives up at once on a registry that is gone.
func (ts *testService) without(r *testRegistry) {
	r.server.Close()
	ts.options.Registry.Retries = -1
	ts.close()
	ts.open()
}

// mustHave expects that a layer is kept as it was transferred.
func (ts *testService) mustHave(l layer) {
	ts.t.Helper()
	if _, err := os.Stat(ts.disk.Content.Path(digest.FromBytes(l.compressed))); err != nil {
		ts.t.Error(err)
	}
}

// The pull of an image that shares a layer, over another parent, leaves the imported one its own.
func TestPullLeavesLayersOfImportedImages(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	shared := gzipLayer(t, file{name: "shared", content: "1"})
	r.image("kept", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}), shared)
	other := gzipLayer(t, file{name: "b", content: "2"})
	r.image("other", "v1", hostPlatform, ocispec.ImageConfig{}, other, shared)
	s.mustImport(archiveOf(t, r.host+"/kept:v1"))
	s.mustPull(r.host+"/other:v1", "")
	s.mustHave(shared)
	if _, err := os.Stat(s.disk.Content.Path(digest.FromBytes(other.compressed))); err == nil {
		t.Error("the layer that only the pulled image has is kept")
	}
	s.without(r)
	s.export(r.host + "/kept:v1")
}

// The repair of an imported image takes the layers that were kept, and keeps them.
func TestRepairKeepsLayersOfImportedImages(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	l := gzipLayer(t, file{name: "a", content: "1"})
	r.image("kept", "v1", hostPlatform, ocispec.ImageConfig{}, l)
	s.mustImport(archiveOf(t, r.host+"/kept:v1"))
	s.without(r)
	files, err := filepath.Glob(filepath.Join(s.root, "layers/snapshots/*/fs/a"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], []byte("9"), 0o644); err != nil {
		t.Fatal(err)
	}
	report, err := s.Check(t.Context(), true)
	if err != nil || len(report.Damaged) != 1 || !report.Damaged[0].Repaired {
		t.Fatalf("Check: %+v, %v", report, err)
	}
	equal(t, "tree", s.tree("c", s.mustFind(r.host+"/kept:v1", "")), []string{"a=1"})
	s.mustHave(l)
	s.export(r.host + "/kept:v1")
}

// An image whose manifests have its layers packed otherwise keeps those of each that was imported,
// also of one that had been pulled, and they go with the image.
func TestImportKeepsLayersOfEachManifest(t *testing.T) {
	for _, pulled := range []bool{false, true} {
		r, s := newTestRegistry(t), newTestService(t)
		f := file{name: "a", content: "1"}
		gz, zst := gzipLayer(t, f), zstdLayer(t, f)
		r.image("one", "v1", hostPlatform, ocispec.ImageConfig{}, gz)
		r.image("two", "v1", hostPlatform, ocispec.ImageConfig{}, zst)
		one, two := archiveOf(t, r.host+"/one:v1"), archiveOf(t, r.host+"/two:v1")
		if s.mustImport(one); pulled {
			s.mustPull(r.host+"/two:v1", "")
		}
		for range 2 { // again is no change
			s.mustImport(two)
		}
		s.without(r)
		if _, err := s.GC(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		s.mustHave(gz)
		s.mustHave(zst)
		if t.Failed() {
			return
		}
		s.export(r.host+"/one:v1", r.host+"/two:v1")
		if err := s.Remove(t.Context(), r.host+"/one:v1"); err != nil {
			t.Fatal(err)
		}
		if n := s.blobs(); n != 0 {
			t.Errorf("%d blobs left", n)
		}
	}
}

// An import that ends while the same image is pulled keeps its layers.
func TestImportDuringThePull(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	l := gzipLayer(t, file{name: "a", content: "1"})
	m := r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, l)
	ref := r.host + "/app:v1"
	archive := archiveOf(t, ref)
	// The pull has brought the image, and not recorded it, once it asks for the other variant.
	other := r.image("app", "", "wasip1/wasm", ocispec.ImageConfig{Entrypoint: []string{"/a.wasm"}}, gzipLayer(t, file{name: "a.wasm", content: string(moduleBytes("1"))}))
	r.index("app", "v2", m, other)
	imported := false
	r.setFront(func(_ http.ResponseWriter, q *http.Request) bool {
		if strings.HasSuffix(q.URL.Path, other.Digest.String()) && !imported {
			imported = true
			s.mustImport(archive)
		}
		return false
	})
	img := s.mustPull(r.host+"/app:v2", "")
	if !imported {
		t.Fatal("nothing was imported meanwhile, nothing is tested")
	}
	if !s.disk.DB.State().Images[img.ID].Kept {
		t.Error("the image does not keep its layers any more")
	}
	s.without(r)
	if _, err := s.GC(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	s.mustHave(l)
	s.export(ref)
}

// An import keeps a layer that it found present, though the image that it was kept for is removed
// meanwhile.
func TestImportHoldsLayersThatItFinds(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	base := gzipLayer(t, file{name: "a", content: "1"})
	r.image("base", "v1", hostPlatform, ocispec.ImageConfig{}, base)
	r.image("app", "v1", "wasip1/wasm", ocispec.ImageConfig{Entrypoint: []string{"/app.wasm"}},
		base, gzipLayer(t, file{name: "app.wasm", content: string(moduleBytes("1"))}))
	s.mustImport(archiveOf(t, r.host+"/base:v1"))
	app := archiveOf(t, r.host+"/app:v1")
	removed := false
	s.options.Arrived = func(ctx context.Context, _, _ string) error { // layers have been looked for
		removed = true
		return s.Remove(ctx, r.host+"/base:v1")
	}
	s.without(r)
	s.mustImport(app)
	if !removed {
		t.Fatal("nothing was removed meanwhile, nothing is tested")
	}
	s.mustHave(base)
	s.export(r.host + "/app:v1")
}
