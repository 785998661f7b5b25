package images

import (
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// The module of a filesystem image is what its entrypoint names; whether that is
// a component is found out as for an artifact.
func TestArriveOfFilesystemImages(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	module := string(moduleBytes("m"))
	base := gzipLayer(t, file{name: "etc/"}, file{name: "etc/conf", content: "x"})
	wasm := ocispec.ImageConfig{Entrypoint: []string{"/app.wasm"}}
	r.image("two", "v1", "wasi/wasm", wasm, base, gzipLayer(t, file{name: "app.wasm", content: module}))
	r.image("link", "v1", "linux/wasm", wasm, gzipLayer(t, file{name: "m", content: module}, file{name: "app.wasm", link: "m"}))
	r.image("text", "v1", "wasip1/wasm", wasm, gzipLayer(t, file{name: "app.wasm", content: "#!/bin/sh"}))
	r.image("none", "v1", "wasip1/wasm", wasm, base)
	r.image("component", "v1", "wasip1/wasm", wasm, gzipLayer(t, file{name: "app.wasm", content: string(componentBytes())}))
	for _, repo := range []string{"two", "link", "text", "none", "component"} {
		compiled := false
		progress := func(p Progress) { compiled = compiled || p.Phase == "compile" }
		if _, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/" + repo + ":v1", Progress: progress}); err != nil {
			t.Fatal(err)
		}
		if compiled != (repo == "two" || repo == "component") {
			t.Errorf("%s: compiling was shown: %t", repo, compiled)
		}
	}
	if len(s.arrived) != 2 { // two and link hold the same module
		t.Errorf("arrived %q", s.arrived)
	}
}
