package images

import (
	"net/http"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/registry"
)

// What credentials have opened is there for every handler afterwards, without credentials and
// without the registry.
func TestAPrivateImageIsFetchedForEveryHandler(t *testing.T) {
	for _, first := range []string{"runc", "wasm", ""} {
		t.Run("first for "+first, func(t *testing.T) {
			r, s := newTestRegistry(t), newTestService(t)
			_, host, wasm := appIndex(t, r, "mine", "v1", "1")
			r.setFront(private)
			ref := r.host + "/mine:v1"
			if _, err := s.Pull(t.Context(), PullRequest{Ref: ref, Handler: first, Auth: userAuth("u")}); err != nil {
				t.Fatal(err)
			}
			r.server.Close()
			id, ok := s.Answer(ref)
			if !ok {
				t.Fatal("no answer")
			}
			for handler, want := range map[string]ocispec.Descriptor{"runc": host, "wasm": wasm} {
				img, err := s.ForContainer(t.Context(), id, ref, handler)
				if err != nil || img.Manifest.Digest != want.Digest {
					t.Errorf("for %s: %s, %v", handler, img.Manifest.Digest, err)
				}
			}
		})
	}
}

// An image that anybody may have is fetched for the handler that asks; one whose other variant is
// at fault is fetched too.
func TestVariantsThatArePassedOver(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	appIndex(t, r, "open", "v1", "1")
	host := r.image("mine", "", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	module := r.artifact("mine", "", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, moduleBytes("gone"))
	r.index("mine", "v1", host, module)
	gone := ""
	away := http.StatusNotFound
	r.setFront(func(w http.ResponseWriter, req *http.Request) bool {
		if gone != "" && strings.HasSuffix(req.URL.Path, gone) {
			w.WriteHeader(away)
			return true
		}
		return private(w, req)
	})
	s.mustPull(r.host+"/open:v1", "runc")
	if n := len(s.disk.DB.State().Images); n != 1 {
		t.Errorf("%d images of an open repository, want 1", n)
	}
	req := PullRequest{Ref: r.host + "/mine:v1", Handler: "runc", Auth: userAuth("u")}
	gone, away = module.Digest.String(), http.StatusServiceUnavailable
	if _, err := s.Pull(t.Context(), req); err == nil || !strings.HasPrefix(err.Error(), registry.UnavailablePrefix) {
		t.Errorf("a variant that may come later: %v", err)
	}
	away = http.StatusNotFound
	if _, err := s.Pull(t.Context(), req); err != nil {
		t.Errorf("a variant that is missing: %v", err)
	}
	_, err := s.ForContainer(t.Context(), r.host+"/mine:v1", "", "wasm")
	if err == nil {
		t.Fatal("the missing variant is there")
	}
	gone = ""
	id, _ := s.Answer(r.host + "/mine:v1")
	_, err = s.ForContainer(t.Context(), id, r.host+"/mine:v1", "wasm")
	for _, text := range []string{`fetch variant of image "` + r.host + `/mine:v1" for handler "wasm"`, "imagePullSecrets"} {
		if !errdefs.IsUnauthorized(err) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not say %q", err, text)
		}
	}
	if _, err := s.Pull(t.Context(), req); err != nil { // as the error says
		t.Fatal(err)
	}
	if _, err := s.ForContainer(t.Context(), id, r.host+"/mine:v1", "wasm"); err != nil {
		t.Error(err)
	}
}

// A reference goes by one id, whatever handler asks, whatever comes later and after a restart,
// until that image goes.
func TestAnswer(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	index, _, _ := appIndex(t, r, "app", "v1", "1")
	ref := r.host + "/app:v1"
	answers := func(want string) {
		t.Helper()
		for _, name := range []string{ref, r.host + "/app@" + index.Digest.String()} {
			if got, _ := s.Answer(name); got != want {
				t.Errorf("%s goes by %q, want %q", name, got, want)
			}
		}
	}
	answers("")
	wasm := s.mustPull(ref, "wasm")
	answers(wasm.ID)
	host, err := s.ForContainer(t.Context(), wasm.ID, ref, "runc")
	if err != nil {
		t.Fatal(err)
	}
	answers(wasm.ID)
	s.mustPull(ref, "")
	s.close()
	s.open()
	answers(wasm.ID)
	if err := s.Remove(t.Context(), wasm.ID); err != nil {
		t.Fatal(err)
	}
	answers(host.ID)
	s.mustPull(ref, "")
	answers(host.ID)
	if id, ok := s.Answer(wasm.ID); ok {
		t.Errorf("an id goes by %q", id)
	}

	// A tag that has moved goes by what it means now.
	linux := r.image("app", "v2", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "x", content: "x"}))
	ref, index = r.host+"/app:v2", linux
	s.mustPull(ref, "")
	module := r.artifact("app", "v2", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, moduleBytes("m"))
	index = module
	moved := s.mustPull(ref, "wasm")
	answers(moved.ID)
}
