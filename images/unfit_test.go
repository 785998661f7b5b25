package images

import (
	"fmt"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// An image that was imported, or whose registry is away, is asked for by a handler that it has no
// variant for: the error says which it has.
func TestPullOfAVariantThatIsNotHere(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	r.image("app", "v1", "wasip1/wasm", ocispec.ImageConfig{Entrypoint: []string{"/app.wasm"}}, gzipLayer(t, file{name: "app.wasm", content: string(moduleBytes("m"))}))
	ref := r.host + "/app:v1"
	s.mustPull(ref, "wasm")
	r.server.Close()
	_, err := s.Pull(t.Context(), PullRequest{Ref: ref, Handler: "runc"})
	want := fmt.Sprintf(`RegistryUnavailable: pull %q: the image on this node cannot be used: the image is for wasip1/wasm, not for linux/`, ref)
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), `handler "wasm" takes it; its registry: resolve: Head `) {
		t.Errorf("error %v\nwant  %s", err, want)
	}
	if _, err := s.Pull(t.Context(), PullRequest{Ref: ref, Handler: "wasm"}); err == nil || strings.Contains(err.Error(), "cannot be used") {
		t.Errorf("a pull of what is here: %v", err)
	}
}
