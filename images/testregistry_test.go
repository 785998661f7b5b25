package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
)

const (
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerConfig   = "application/vnd.docker.container.image.v1+json"
	dockerLayer    = "application/vnd.docker.image.rootfs.diff.tar.gzip"
)

// testRegistry is a real registry on loopback that writes down what it is asked.
type testRegistry struct {
	t      *testing.T
	server *httptest.Server
	inner  http.Handler
	host   string

	mu       sync.Mutex
	requests []string // "METHOD path", without the pushes of the test
	// front, when set, may answer a request itself and then returns true.
	front func(http.ResponseWriter, *http.Request) bool
}

func newTestRegistry(t *testing.T) *testRegistry {
	t.Helper()
	r := &testRegistry{t: t, inner: ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))}
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.requests = append(r.requests, req.Method+" "+req.URL.Path)
		front := r.front
		r.mu.Unlock()
		if front == nil || !front(w, req) {
			r.inner.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(r.server.Close)
	r.host = strings.TrimPrefix(r.server.URL, "http://")
	return r
}

func (r *testRegistry) setFront(f func(http.ResponseWriter, *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.front = f
}

// asked returns what was requested since the last call.
func (r *testRegistry) asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.requests
	r.requests = nil
	return out
}

func countBlobs(requests []string) int {
	n := 0
	for _, r := range requests {
		if strings.Contains(r, "/blobs/") {
			n++
		}
	}
	return n
}

func (r *testRegistry) put(path, contentType string, data []byte) {
	r.t.Helper()
	req := httptest.NewRequest(http.MethodPut, path, bytes.NewReader(data))
	req.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	r.inner.ServeHTTP(w, req)
	if w.Code > 299 {
		r.t.Fatalf("PUT %s: %d %s", path, w.Code, w.Body)
	}
}

func (r *testRegistry) blob(repo, mediaType string, data []byte) ocispec.Descriptor {
	r.t.Helper()
	d := digest.FromBytes(data)
	req := httptest.NewRequest(http.MethodPost, "/v2/"+repo+"/blobs/uploads/?digest="+d.String(), bytes.NewReader(data))
	w := httptest.NewRecorder()
	r.inner.ServeHTTP(w, req)
	if w.Code > 299 {
		r.t.Fatalf("POST blob: %d %s", w.Code, w.Body)
	}
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

// document pushes a manifest or index, under a tag too if that is not "".
func (r *testRegistry) document(repo, tag, mediaType string, v any) ocispec.Descriptor {
	r.t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		r.t.Fatal(err)
	}
	d := digest.FromBytes(data)
	r.put("/v2/"+repo+"/manifests/"+d.String(), mediaType, data)
	if tag != "" {
		r.put("/v2/"+repo+"/manifests/"+tag, mediaType, data)
	}
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

// layer is a layer in the making.
type layer struct {
	mediaType  string
	diff       digest.Digest
	compressed []byte
}

// file is an entry of a layer: a name that ends in "/" is a directory, a link
// makes a symbolic link.
type file struct {
	name, content, link string
	kind                byte
	mode                int64
}

func tarOf(t *testing.T, files ...file) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		if f.mode != 0 {
			h.Mode = f.mode
		}
		switch {
		case f.kind != 0:
			h.Typeflag, h.Linkname = f.kind, f.link
		case strings.HasSuffix(f.name, "/"):
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		case f.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func gzipLayer(t *testing.T, files ...file) layer {
	t.Helper()
	raw := tarOf(t, files...)
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return layer{ocispec.MediaTypeImageLayerGzip, digest.FromBytes(raw), buf.Bytes()}
}

func zstdLayer(t *testing.T, files ...file) layer {
	t.Helper()
	raw := tarOf(t, files...)
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return layer{ocispec.MediaTypeImageLayerZstd, digest.FromBytes(raw), w.EncodeAll(raw, nil)}
}

func plainLayer(t *testing.T, files ...file) layer {
	t.Helper()
	raw := tarOf(t, files...)
	return layer{ocispec.MediaTypeImageLayer, digest.FromBytes(raw), raw}
}

// image pushes an OCI image and returns its descriptor with its platform.
func (r *testRegistry) image(repo, tag, platform string, c ocispec.ImageConfig, layers ...layer) ocispec.Descriptor {
	r.t.Helper()
	return r.imageOf(repo, tag, platform, c, ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageConfig, layers...)
}

func (r *testRegistry) imageOf(repo, tag, platform string, c ocispec.ImageConfig, manifestType, configType string, layers ...layer) ocispec.Descriptor {
	r.t.Helper()
	p := parsePlatforms(r.t, platform)[0]
	cfg := ocispec.Image{Platform: p, Config: c}
	cfg.RootFS.Type = "layers"
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: manifestType}
	for _, l := range layers {
		cfg.RootFS.DiffIDs = append(cfg.RootFS.DiffIDs, l.diff)
		m.Layers = append(m.Layers, r.blob(repo, l.mediaType, l.compressed))
	}
	data, err := json.Marshal(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	m.Config = r.blob(repo, configType, data)
	d := r.document(repo, tag, manifestType, m)
	d.Platform = &p
	return d
}

// artifact pushes a WebAssembly artifact.
func (r *testRegistry) artifact(repo, tag, configType, config, layerType string, modules ...[]byte) ocispec.Descriptor {
	r.t.Helper()
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	var digests []string
	for _, b := range modules {
		l := r.blob(repo, layerType, b)
		l.Annotations = map[string]string{ocispec.AnnotationTitle: repo + ".wasm", "org.example": "not kept"}
		m.Layers = append(m.Layers, l)
		digests = append(digests, fmt.Sprintf("%q", l.Digest))
	}
	config = strings.ReplaceAll(config, "$LAYERS", strings.Join(digests, ","))
	m.Config = r.blob(repo, configType, []byte(config))
	d := r.document(repo, tag, ocispec.MediaTypeImageManifest, m)
	p := manifest.WasmPlatform
	d.Platform = &p
	return d
}

func (r *testRegistry) index(repo, tag string, entries ...ocispec.Descriptor) ocispec.Descriptor {
	r.t.Helper()
	return r.document(repo, tag, ocispec.MediaTypeImageIndex, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: entries,
	})
}

// attestation pushes what BuildKit adds to an index for each image.
func (r *testRegistry) attestation(repo string, of ocispec.Descriptor) ocispec.Descriptor {
	r.t.Helper()
	d := r.document(repo, "", ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: r.blob(repo, ocispec.MediaTypeImageConfig, []byte(`{"architecture":"unknown","os":"unknown"}`)),
		Layers: []ocispec.Descriptor{r.blob(repo, "application/vnd.in-toto+json", []byte(`{"for":"`+of.Digest.String()+`"}`))},
	})
	d.Platform = &ocispec.Platform{OS: "unknown", Architecture: "unknown"}
	d.Annotations = map[string]string{
		manifest.ReferenceTypeAnnotation: "attestation-manifest",
		"vnd.docker.reference.digest":    of.Digest.String(),
	}
	return d
}

const (
	wasmConfig = `{"architecture":"wasm","os":"wasip1","layerDigests":[$LAYERS]}`
)

// moduleBytes is a core module without content but a custom section.
func moduleBytes(content string) []byte {
	b := []byte("\x00asm\x01\x00\x00\x00\x00")
	b = append(b, byte(len(content)+2), 1, 'x')
	return append(b, content...)
}

func componentBytes() []byte { return []byte("\x00asm\x0d\x00\x01\x00") }

// parsePlatforms makes platforms of "os/arch[/variant]".
func parsePlatforms(t *testing.T, names ...string) []ocispec.Platform {
	t.Helper()
	var out []ocispec.Platform
	for _, n := range names {
		os, rest, _ := strings.Cut(n, "/")
		arch, variant, _ := strings.Cut(rest, "/")
		out = append(out, ocispec.Platform{OS: os, Architecture: arch, Variant: variant})
	}
	return out
}
