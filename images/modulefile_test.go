package images

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
)

func TestReadModule(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	_, host, wasm := appIndex(t, r, "app", "v1", "1")
	r.artifact("mod", "v1", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, moduleBytes("artifact"))
	cfg := ocispec.ImageConfig{Entrypoint: []string{"tool"}, Env: []string{"PATH=/bin"}}
	r.image("tool", "v1", hostPlatform, cfg, gzipLayer(t, file{name: "bin/tool", content: "old"}),
		gzipLayer(t, file{name: "bin/tool", content: string(moduleBytes("in a Linux image"))}))
	r.image("linux", "v1", hostPlatform, ocispec.ImageConfig{Entrypoint: []string{"/app"}}, gzipLayer(t, file{name: "app", content: "\x7fELF"}))
	r.image("short", "v1", hostPlatform, ocispec.ImageConfig{Entrypoint: []string{"/app"}}, gzipLayer(t, file{name: "app", content: "a"}))
	r.image("bare", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "app", content: "a"}))
	for _, name := range []string{"app", "mod", "tool", "linux", "short", "bare"} {
		s.mustPull(r.host+"/"+name+":v1", "")
	}
	for _, tt := range []struct {
		name, handler, want, command string
		class                        func(error) bool
		text                         string
	}{
		{"app:v1", "", string(moduleBytes("1")), "/app.wasm", nil, ""},
		{"app:v1", "wasm", string(moduleBytes("1")), "/app.wasm", nil, ""},
		{"app:v1", "runc", "", "", errdefs.IsFailedPrecondition, `command "/app" is something else`},
		{"mod:v1", "", string(moduleBytes("artifact")), "", nil, ""},
		{"tool:v1", "", string(moduleBytes("in a Linux image")), "tool", nil, ""},
		{"linux:v1", "", "", "", errdefs.IsFailedPrecondition, "brings no WebAssembly module"},
		{"short:v1", "", "", "", errdefs.IsFailedPrecondition, "something else"},
		{"bare:v1", "", "", "", errdefs.IsFailedPrecondition, "no command"},
		{"absent:v1", "", "", "", errdefs.IsNotFound, "absent"},
		{"app:v1", "gvisor", "", "", errdefs.IsInvalidArgument, "gvisor"},
	} {
		var got []byte
		var about ModuleFile
		err := s.ReadModule(t.Context(), r.host+"/"+tt.name, tt.handler, func(f ModuleFile, content io.Reader) (err error) {
			about = f
			got, err = io.ReadAll(content)
			return err
		})
		if tt.class != nil {
			if !tt.class(err) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s for %q: %v", tt.name, tt.handler, err)
			}
			continue
		}
		if err != nil || string(got) != tt.want || about.Command != tt.command || (about.Digest == "") == (about.Image.Kind == Module) {
			t.Errorf("%s for %q: %q of %+v, %v", tt.name, tt.handler, got, about, err)
		}
	}
	mine := errors.New("mine")
	if err := s.ReadModule(t.Context(), r.host+"/app:v1", "", func(ModuleFile, io.Reader) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("error of read: %v", err)
	}
	if host.Digest == wasm.Digest {
		t.Error("the variants are one")
	}
	s.noMounts()
	s.check()
}
