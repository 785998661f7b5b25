package images

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/pull"
)

// sized pushes an image whose one layer is said to have a size, and makes the registry give it
// without an end.
func sized(r *testRegistry, repo, mediaType string, size int64) {
	r.t.Helper()
	layer := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromString(repo), Size: size}
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Layers: []ocispec.Descriptor{layer}}
	m.SchemaVersion = 2
	config := fmt.Sprintf(`{"os":"linux","architecture":%q,"rootfs":{"type":"layers","diff_ids":[%q]}}`, strings.TrimPrefix(hostPlatform, "linux/"), layer.Digest)
	m.Config = r.blob(repo, ocispec.MediaTypeImageConfig, []byte(config))
	r.document(repo, "v1", ocispec.MediaTypeImageManifest, m)
	r.setFront(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, layer.Digest.String()) {
			return false
		}
		for err := error(nil); err == nil; {
			_, err = io.WriteString(w, strings.Repeat("endless ", 8<<10))
		}
		return true
	})
}

// A layer that says it is larger than it may be, than the disk or than the budget is not fetched,
// and one that is not what it says leaves nothing.
func TestLayersWithoutAnEnd(t *testing.T) {
	free, err := space.Free(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, mediaType  string
		size, max, limit int64
		is               func(error) bool
		text             string
		fetched          int
	}{
		{"more than a number holds twice", ocispec.MediaTypeImageLayerGzip, 1 << 62, 0, 0, errdefs.IsInvalidArgument, "size 4611686018427387904", 0},
		{"more than a layer may unpack to", ocispec.MediaTypeImageLayer, 300 << 20, 100 << 20, 0, errdefs.IsInvalidArgument, "images.max_layer_mib", 0},
		{"more than a module may have", manifest.MediaTypeWasm, pull.MaxModule + 1, 0, 0, errdefs.IsInvalidArgument, "more than", 0},
		{"more than the disk has", ocispec.MediaTypeImageLayer, free + free/8, 2 * free, 0, errdefs.IsResourceExhausted, "no room", 0},
		{"more than the budget", ocispec.MediaTypeImageLayer, 20 << 20, 0, 10 << 20, errdefs.IsResourceExhausted, "images.budget_mib", 0},
		{"longer than it says", ocispec.MediaTypeImageLayer, 1 << 20, 0, 0, errdefs.IsDataLoss, "corrupt", 1},
		{"a module longer than it says", manifest.MediaTypeWasm, 1 << 20, 0, 0, errdefs.IsDataLoss, "corrupt", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, s := newTestRegistry(t), newTestService(t)
			s.close()
			s.options.MaxLayerSize, s.options.Budget = tt.max, tt.limit
			s.open()
			sized(r, "big", tt.mediaType, tt.size)
			r.asked()
			_, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/big:v1"})
			if !tt.is(err) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v, want %q", err, tt.text)
			}
			layers := 0
			for _, q := range r.asked() {
				if strings.HasSuffix(q, "/blobs/"+digest.FromString("big").String()) {
					layers++
				}
			}
			if layers != tt.fetched {
				t.Errorf("the layer was fetched %d times, want %d", layers, tt.fetched)
			}
			if n := s.parts() + s.blobs(); n > 0 {
				t.Errorf("%d blobs are left", n)
			}
		})
	}
}

// What came before the disk or the budget was found to be too small goes; what came before the
// network broke stays.
func TestWhatAFailedPullLeaves(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	s.close()
	s.options.Budget = 8 << 20
	s.open()
	l := gzipLayer(t, file{name: "zeros", content: strings.Repeat("\x00", 16<<20)}, file{name: "more", content: strings.Repeat("y", 100)})
	r.image("zeros", "v1", hostPlatform, ocispec.ImageConfig{}, l)
	if _, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/zeros:v1"}); !errdefs.IsResourceExhausted(err) {
		t.Errorf("a layer that unpacks to more than the budget: %v", err)
	}
	if n := s.parts() + s.blobs(); n > 0 {
		t.Errorf("%d blobs are left", n)
	}
	text := gzipLayer(t, file{name: "no-module", content: "x"})
	r.artifact("text", "v1", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, text.compressed)
	if _, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/text:v1", Handler: "wasm"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a module that is none: %v", err)
	}
	if n := s.parts() + s.blobs(); n > 0 {
		t.Errorf("%d blobs are left", n)
	}
	good := r.image("good", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	s.mustPull(r.host+"/good:v1", "")
	r.setFront(func(w http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(req.URL.Path, "/blobs/") {
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
		return false
	})
	r.image("late", "v1", hostPlatform, ocispec.ImageConfig{User: "1"}, gzipLayer(t, file{name: "b", content: "1"}))
	if _, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/late:v1"}); !errdefs.IsResourceExhausted(err) {
		t.Errorf("a registry that was asked too often: %v", err)
	}
	if n := s.blobs(); n != 3 { // manifest and configuration of the good one, the manifest of the late one
		t.Errorf("%d blobs, want 3 (%s is good)", n, good.Digest)
	}
}
