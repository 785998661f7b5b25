package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/layout"
	"github.com/sunaba-project/sunaba/images/manifest"
)

// export writes images to a file and returns its name.
func (ts *testService) export(names ...string) string {
	ts.t.Helper()
	e, err := ts.Export(ts.t.Context(), names)
	if err != nil {
		ts.t.Fatal(err)
	}
	file := filepath.Join(ts.t.TempDir(), "images.tar")
	f, err := os.Create(file)
	if err == nil {
		err = e.Write(ts.t.Context(), f)
		f.Close()
	}
	if err != nil {
		ts.t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		ts.t.Fatal(err)
	}
	return file
}

// What one node exports another imports, without a network, under the same names
// and ids, with every variant.
func TestExportAndImport(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	index, _, _ := appIndex(t, r, "app", "v1", "1")
	ref := r.host + "/app:v1"
	host := s.mustPull(ref, "")
	wasm := s.mustFind(ref, "wasm")
	nested := r.index("nest", "", r.image("nest", "", hostPlatform, ocispec.ImageConfig{}, zstdLayer(t, file{name: "n", content: "2"})))
	r.index("nest", "v2", nested)
	s.mustPull(r.host+"/nest:v2", "")
	before := s.blobs()
	plain := s.export(ref, r.host+"/nest:v2")
	if n := s.blobs(); n != before {
		t.Errorf("%d blobs after the export, %d before", n, before)
	}
	r.server.Close()

	data, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	w.Write(data)
	w.Close()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	unpacked := filepath.Join(dir, "layout")
	if err := layout.Unpack(bytes.NewReader(data), unpacked); err != nil {
		t.Fatal(err)
	}
	for name, req := range map[string]ImportRequest{
		"archive":   {Path: plain},
		"gzip":      {Path: write("a.tgz", zipped.Bytes())},
		"zstd":      {Path: write("a.zst", enc.EncodeAll(data, nil))},
		"directory": {Path: unpacked},
		"stream":    {},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestService(t)
			var phases []string
			req.Progress = func(p Progress) { phases = append(phases, p.Phase) }
			for range 2 { // again is no change
				if req.Path == "" {
					req.Reader = bytes.NewReader(data)
				}
				got, err := s.Import(t.Context(), req)
				if err != nil || len(got) != 2 {
					t.Fatalf("%d images, %v", len(got), err)
				}
			}
			if !slices.Contains(phases, "fetch") || phases[len(phases)-1] != "done" {
				t.Errorf("phases %q", phases)
			}
			if got := s.mustFind(ref, ""); got.ID != host.ID || !slices.Contains(got.RepoDigests, r.host+"/app@"+index.Digest.String()) {
				t.Errorf("host's variant %+v", got)
			}
			if got := s.mustFind(ref, "wasm"); got.ID != wasm.ID {
				t.Errorf("variant for wasm %s, want %s", got.ID, wasm.ID)
			}
			equal(t, "tree", s.tree("c", s.mustFind(ref, "")), []string{"app=host 1"})
			equal(t, "nested", s.tree("d", s.mustFind(r.host+"/nest:v2", "")), []string{"n=2"})
			if left, err := filepath.Glob(s.root + "/spool/*"); err != nil || len(left) != 0 {
				t.Errorf("spooled: %q, %v", left, err)
			}
			if report, err := s.Check(t.Context(), false); err != nil || len(report.Damaged) != 0 {
				t.Errorf("Check: %+v, %v", report, err)
			}
		})
	}
}

func TestExportWithoutTheRegistry(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	ref := r.host + "/app:v1"
	s.mustPull(ref, "")
	other := newTestService(t)
	other.close()
	other.options.KeepLayers = true
	other.open()
	other.mustPull(ref, "")
	r.server.Close()
	_, err := s.Export(t.Context(), []string{ref})
	if err == nil || !strings.Contains(err.Error(), "images.keep_layers") {
		t.Errorf("layers that are not there: %v", err)
	}
	s.check()
	if _, err := s.Export(t.Context(), []string{"absent"}); !errdefs.IsNotFound(err) {
		t.Errorf("an absent image: %v", err)
	}
	if _, err := s.Export(t.Context(), nil); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no image: %v", err)
	}
	// Kept layers survive a restart and a sweep, and go with their image.
	other.close()
	other.open()
	other.export(ref)
	if g, err := other.GC(t.Context(), true); err != nil || g.Blobs != 0 {
		t.Errorf("GC: %+v, %v", g, err)
	}
	if err := other.Remove(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if b, l := other.blobs(), other.layerDirs(); b != 0 || l != 0 {
		t.Errorf("%d blobs and %d layers left", b, l)
	}
}

// dockerArchive is what docker save wrote before version 25.
func dockerArchive(t *testing.T, layers [][]byte, tags ...string) []byte {
	t.Helper()
	cfg := ocispec.Image{Platform: parsePlatforms(t, hostPlatform)[0]}
	cfg.RootFS.Type = "layers"
	img := map[string]any{"RepoTags": tags}
	files := []file{}
	var names []string
	for i, l := range layers {
		cfg.RootFS.DiffIDs = append(cfg.RootFS.DiffIDs, digest.FromBytes(l))
		name := fmt.Sprintf("%064d/layer.tar", i)
		if i == 0 { // a layer that the archive has already is a link
			files = append(files, file{name: "shared/layer.tar", content: string(l)}, file{name: name, link: "../shared/layer.tar"})
		} else {
			var buf bytes.Buffer
			w := gzip.NewWriter(&buf)
			w.Write(l)
			w.Close()
			files = append(files, file{name: name, content: buf.String()})
		}
		names = append(names, name)
	}
	config, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	img["Layers"], img["Config"] = names, digest.FromBytes(config).Encoded()+".json"
	manifest, err := json.Marshal([]any{img})
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, file{name: img["Config"].(string), content: string(config)}, file{name: "manifest.json", content: string(manifest)})
	return tarOf(t, files...)
}

func TestImportDockerArchive(t *testing.T) {
	s := newTestService(t)
	layers := [][]byte{tarOf(t, file{name: "a", content: "1"}), tarOf(t, file{name: "b", content: "2"})}
	imgs, err := s.Import(t.Context(), ImportRequest{Reader: bytes.NewReader(dockerArchive(t, layers, "app:v1", "example.org/app:v2"))})
	if err != nil || len(imgs) != 2 || imgs[0].ID != imgs[1].ID {
		t.Fatalf("%+v, %v", imgs, err)
	}
	equal(t, "tags", s.mustFind("app:v1", "").RepoTags, []string{"docker.io/library/app:v1", "example.org/app:v2"})
	equal(t, "tree", s.tree("c", imgs[0]), []string{"a=1", "b=2"})
	if _, err := s.Import(t.Context(), ImportRequest{Reader: bytes.NewReader(dockerArchive(t, layers))}); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "no name") {
		t.Errorf("without a name: %v", err)
	}
	imgs, err = s.Import(t.Context(), ImportRequest{Reader: bytes.NewReader(dockerArchive(t, layers)), Name: "given"})
	if err != nil || !slices.Contains(imgs[0].RepoTags, "docker.io/library/given:latest") {
		t.Errorf("with a name given: %+v, %v", imgs, err)
	}
}

// A layout that names an image also lists what it consists of, as that of oras: these are no images
// of their own.
func TestImportPassesOverParts(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	index, host, wasm := appIndex(t, r, "app", "v1", "1")
	s.mustPull(r.host+"/app:v1", "")
	dir := filepath.Join(t.TempDir(), "layout")
	data, err := os.ReadFile(s.export(r.host + "/app:v1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := layout.Unpack(bytes.NewReader(data), dir); err != nil {
		t.Fatal(err)
	}
	write := func(entries ...ocispec.Descriptor) {
		t.Helper()
		data, err := json.Marshal(ocispec.Index{Manifests: entries})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "index.json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	signature := ocispec.Descriptor{
		MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString("absent"), Size: 6, ArtifactType: "application/vnd.dev.cosign.artifact.sig.v1+json",
	}
	index.Annotations = map[string]string{ocispec.AnnotationRefName: "v3"}
	write(host, index, wasm, signature)
	other := newTestService(t)
	imgs, err := other.Import(t.Context(), ImportRequest{Path: dir, Name: "example.org/app"})
	if err != nil || len(imgs) != 1 {
		t.Fatalf("%d images, %v", len(imgs), err)
	}
	equal(t, "tags", imgs[0].RepoTags, []string{"example.org/app:v3"})
	write(host, signature) // an image without a name is one if there is no other
	imgs, err = other.Import(t.Context(), ImportRequest{Path: dir, Name: "example.org/alone"})
	if err != nil || len(imgs) != 1 {
		t.Fatalf("%d images, %v", len(imgs), err)
	}
	equal(t, "tags", imgs[0].RepoTags, []string{"example.org/alone:latest", "example.org/app:v3"})
}

func TestImportErrors(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	d := r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	s.mustPull(r.host+"/app:v1", "")
	good, err := os.ReadFile(s.export(r.host + "/app:v1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), r.host+"/app:v1"); err != nil {
		t.Fatal(err)
	}
	// without leaves a file of an archive out, or changes it.
	change := func(name string, to func([]byte) []byte) []byte {
		var files []file
		in := tar.NewReader(bytes.NewReader(good))
		for {
			h, err := in.Next()
			if err != nil {
				break
			}
			data, _ := io.ReadAll(in)
			if h.Typeflag != tar.TypeReg {
				continue
			}
			if strings.HasPrefix(h.Name, name) {
				if data = to(data); data == nil {
					continue
				}
			}
			files = append(files, file{name: h.Name, content: string(data)})
		}
		return tarOf(t, files...)
	}
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	gone := func([]byte) []byte { return nil }
	for name, tt := range map[string]struct {
		data  []byte
		class func(error) bool
	}{
		"no archive":        {[]byte(strings.Repeat("no archive ", 100)), errdefs.IsInvalidArgument},
		"nothing":           {nil, errdefs.IsInvalidArgument},
		"an empty archive":  {tarOf(t), errdefs.IsInvalidArgument},
		"no images":         {tarOf(t, file{name: "index.json", content: `{"manifests":[]}`}), errdefs.IsInvalidArgument},
		"a bad index":       {tarOf(t, file{name: "index.json", content: `{"manifests":[{"digest":"sha256:../../x"}]}`}), errdefs.IsInvalidArgument},
		"no JSON":           {tarOf(t, file{name: "index.json", content: `x`}), errdefs.IsInvalidArgument},
		"cut":               {good[:len(good)/2+7], errdefs.IsInvalidArgument},
		"cut gzip":          {[]byte("\x1f\x8b\x08"), errdefs.IsInvalidArgument},
		"a changed config":  {change("blobs/sha256/"+s.configOf(r, d), flip), errdefs.IsDataLoss},
		"a missing layer":   {change("blobs/sha256/"+s.layerOf(r, d), gone), errdefs.IsNotFound},
		"a changed layer":   {change("blobs/sha256/"+s.layerOf(r, d), flip), errdefs.IsDataLoss},
		"a missing image":   {change("blobs/sha256/"+d.Digest.Encoded(), gone), errdefs.IsNotFound},
		"docker, no config": {tarOf(t, file{name: "manifest.json", content: `[{"Config":"x","Layers":[]}]`}), errdefs.IsInvalidArgument},
	} {
		if _, err := s.Import(t.Context(), ImportRequest{Reader: bytes.NewReader(tt.data)}); !tt.class(err) {
			t.Errorf("%s: %v", name, err)
		}
		s.check()
		if _, err := s.GC(t.Context(), false); err != nil { // what came before it failed would do for the next
			t.Error(err)
		}
	}
	if _, err := s.Import(t.Context(), ImportRequest{Path: "/nowhere"}); !errdefs.IsNotFound(err) {
		t.Errorf("no file: %v", err)
	}
	if list, _ := s.List(t.Context()); len(list) != 0 {
		t.Errorf("%d images", len(list))
	}
	if left, err := filepath.Glob(s.root + "/spool/*"); err != nil || len(left) != 0 {
		t.Errorf("spooled: %q, %v", left, err)
	}
}

// configOf and layerOf find what a manifest of the registry names.
func (ts *testService) configOf(r *testRegistry, d ocispec.Descriptor) string {
	img := ts.mustPull(r.host+"/app@"+d.Digest.String(), "")
	defer ts.Remove(ts.t.Context(), img.ID)
	return strings.TrimPrefix(img.ID, "sha256:")
}

func (ts *testService) layerOf(r *testRegistry, d ocispec.Descriptor) string {
	img := ts.mustPull(r.host+"/app@"+d.Digest.String(), "")
	defer ts.Remove(ts.t.Context(), img.ID)
	return ts.disk.DB.State().Images[img.ID].Layers[0].Digest.Encoded()
}

func TestPreloadAndPinned(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	for _, name := range []string{"one", "two", "three"} {
		r.image(name, "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: name}))
		s.mustPull(r.host+"/"+name+":v1", "")
	}
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := os.Rename(s.export(r.host+"/"+name+":v1"), filepath.Join(dir, name+".tar")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "README"), []byte("no images"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.server.Close()
	edge := newTestService(t)
	edge.close()
	edge.options.Pinned = []string{r.host + "/three:*", "*/four:v1"}
	edge.open()
	err := edge.Preload(t.Context(), dir)
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "README") {
		t.Errorf("a file that is no archive: %v", err)
	}
	if err := edge.Preload(t.Context(), filepath.Join(dir, "absent")); err != nil {
		t.Errorf("no directory: %v", err)
	}
	for _, name := range []string{"one", "two"} {
		if img := edge.mustFind(r.host+"/"+name+":v1", ""); !img.Pinned {
			t.Errorf("%s is not pinned", name)
		}
	}
	if n := edge.blobs(); n != 4 { // manifests and configurations: the layers are in the archives
		t.Errorf("%d blobs, want 4", n)
	}
	if img := s.mustFind(r.host+"/three:v1", ""); img.Pinned {
		t.Error("pinned without a pattern")
	}
	// A person has to say that it is meant, except where another name keeps the image.
	for _, name := range []string{"one", "two"} {
		name = r.host + "/" + name + ":v1"
		for _, by := range []string{name, edge.mustFind(name, "").ID} {
			if removed, err := edge.Untag(t.Context(), by, false); removed || !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "--force") {
				t.Errorf("%s is removed: %v, %v", by, removed, err)
			}
		}
	}
	if err := edge.Tag(t.Context(), r.host+"/two:v1", []string{"mine:1"}); err != nil {
		t.Fatal(err)
	}
	if removed, err := edge.Untag(t.Context(), "mine:1", false); removed || err != nil {
		t.Errorf("another name of a pinned image: %v, %v", removed, err)
	}
	if removed, err := edge.Untag(t.Context(), r.host+"/two:v1", true); !removed || err != nil {
		t.Errorf("a removal by force: %v, %v", removed, err)
	}
	// RemoveImage of the CRI is obeyed, and the next start brings it again.
	if err := edge.Remove(t.Context(), r.host+"/one:v1"); err != nil {
		t.Fatal(err)
	}
	edge.close()
	edge.open()
	edge.Preload(t.Context(), dir)
	edge.mustFind(r.host+"/one:v1", "")
	edge.close()
	edge.options.Pinned = []string{"a["}
	if _, err := Open(edge.options); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a malformed pattern: %v", err)
	}
	edge.options.Pinned = nil
	edge.open()
}

// What GC counts is what it removes, and images stay.
func TestGC(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	img := s.mustPull(r.host+"/app:v1", "")
	late := gzipLayer(t, file{name: "b", content: strings.Repeat("2", 5000)})
	r.image("late", "v1", hostPlatform, ocispec.ImageConfig{}, late)
	r.setFront(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, "/"+digest.FromBytes(late.compressed).String()) {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	if _, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/late:v1"}); err == nil {
		t.Fatal("an image was pulled without its layer")
	}
	dry, err := s.GC(t.Context(), true)
	if err != nil || dry.Blobs == 0 || dry.Bytes == 0 {
		t.Errorf("dry run: %+v, %v", dry, err)
	}
	did, err := s.GC(t.Context(), false)
	if err != nil || did != dry {
		t.Errorf("%+v, %v; the dry run said %+v", did, err, dry)
	}
	if again, err := s.GC(t.Context(), false); err != nil || again != (Garbage{}) {
		t.Errorf("again: %+v, %v", again, err)
	}
	equal(t, "tree", s.tree("c", img), []string{"a=1"})
}

// ImageFsInfo is what du says.
func TestFsUsageIsWhatIsUsed(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	var files []file
	for i := range 200 {
		files = append(files, file{name: fmt.Sprint("f", i), content: strings.Repeat("x", 100*i)})
	}
	r.index("app", "v1", r.image("app", "", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, files...)),
		r.artifact("app", "", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, moduleBytes(strings.Repeat("x", 100))))
	s.mustPull(r.host+"/app:v1", "")
	images, _, err := s.FsUsage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var bytes, inodes int64
	for _, dir := range []string{"content/blobs", "layers/snapshots"} {
		filepath.WalkDir(filepath.Join(s.root, dir), func(p string, d os.DirEntry, err error) error {
			if err != nil || strings.HasSuffix(p, "/blobs") || strings.HasSuffix(p, "/sha256") || strings.HasSuffix(p, "/snapshots") || filepath.Base(filepath.Dir(p)) == "snapshots" || filepath.Base(p) == "record" {
				return err
			}
			info, err := os.Lstat(p)
			bytes += blocks(info)
			inodes++
			return err
		})
	}
	if images.Bytes != bytes || images.Inodes != inodes {
		t.Errorf("%d bytes and %d inodes, on disk are %d and %d", images.Bytes, images.Inodes, bytes, inodes)
	}
}
