package images

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/variant"
)

func TestPullArtifact(t *testing.T) {
	tests := []struct {
		name, configType, config, layerType string
		idIsManifest                        bool
	}{
		{"wasm configuration", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, false},
		{"wasm configuration without layers named", manifest.MediaTypeWasmConfig, `{"os":"wasip1","architecture":"wasm"}`, manifest.MediaTypeWasm, true},
		{"empty configuration", "application/vnd.oci.empty.v1+json", "{}", manifest.MediaTypeWasm, true},
		{"image configuration", ocispec.MediaTypeImageConfig, `{"os":"wasip1","architecture":"wasm","rootfs":{"type":"layers","diff_ids":[$LAYERS]}}`, manifest.MediaTypeWasmContent, false},
		{"component layer type with a core module", ocispec.MediaTypeImageConfig, `{}`, manifest.MediaTypeWasmComponent, true},
		{"wasm configuration with an untyped layer", manifest.MediaTypeWasmConfig, wasmConfig, "application/octet-stream", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, s := newTestRegistry(t), newTestService(t)
			module := moduleBytes("hello")
			d := r.artifact("mod", "v1", tt.configType, tt.config, tt.layerType, module)
			ref := r.host + "/mod:v1"
			for _, handler := range []string{"wasm", ""} {
				img := s.mustPull(ref, handler)
				if img.Kind != Module || img.Platform.OS != "wasip1" || img.Platform.Architecture != "wasm" || img.Size <= 0 {
					t.Errorf("image is %+v", img)
				}
				if img.Module.Digest != digest.FromBytes(module) {
					t.Errorf("module is %s", img.Module.Digest)
				}
				if got := img.Module.Annotations; len(got) != 1 || got[ocispec.AnnotationTitle] != "mod.wasm" {
					t.Errorf("module is annotated with %v", got)
				}
				if got := img.ID == d.Digest.String(); got != tt.idIsManifest {
					t.Errorf("id is the manifest's digest: %v, want %v", got, tt.idIsManifest)
				}
				if data, err := os.ReadFile(s.ModulePath(img)); err != nil || string(data) != string(module) {
					t.Errorf("module holds %q, %v", data, err)
				}
			}
			if len(s.arrived) != 1 || s.arrived[0] != digest.FromBytes(module).String() {
				t.Errorf("Arrived was called with %q", s.arrived)
			}
			_, err := s.Pull(t.Context(), PullRequest{Ref: ref, Handler: "runc"})
			if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), `handler "wasm" takes it`) {
				t.Errorf("Pull for runc: %v", err)
			}
		})
	}
}

func TestCompressedArtifacts(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	module := moduleBytes(strings.Repeat("x", 60))
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	w.Write(module)
	w.Close()
	for repo, tt := range map[string]struct {
		mediaType string
		layer     []byte
	}{
		"gzip":    {manifest.MediaTypeWasmContent + "+gzip", zipped.Bytes()},
		"zstd":    {manifest.MediaTypeWasm + "+zstd", enc.EncodeAll(module, nil)},
		"untold":  {manifest.MediaTypeWasm, zipped.Bytes()},
		"plain":   {manifest.MediaTypeWasmModule, module},
		"wrapped": {manifest.MediaTypeWasmComponent + "+gzip", zipped.Bytes()},
	} {
		r.artifact(repo, "v1", manifest.MediaTypeWasmConfig, wasmConfig, tt.mediaType, tt.layer)
		img := s.mustPull(r.host+"/"+repo+":v1", "wasm")
		if data, err := os.ReadFile(s.ModulePath(img)); err != nil || !bytes.Equal(data, module) {
			t.Errorf("%s: module holds %q, %v", repo, data, err)
		}
		if got := img.Module.Annotations[ocispec.AnnotationTitle]; !strings.HasSuffix(got, ".wasm") { // equal ones are one image
			t.Errorf("%s: module is called %q", repo, got)
		}
	}
	if len(s.arrived) != 1 {
		t.Errorf("Arrived was called with %q", s.arrived)
	}
	// Five manifests, four configurations (two layers are one), one module.
	if n := s.blobs(); n != 5+3+1 {
		t.Errorf("%d blobs", n)
	}
	for name, layer := range map[string][]byte{
		"cut": zipped.Bytes()[:len(zipped.Bytes())-9], "no module": enc.EncodeAll([]byte("no module at all"), nil),
	} {
		r.artifact("bad", "v1", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, layer)
		if _, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/bad:v1"}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestArtifactsWithTheSameConfigurationDiffer(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	for _, name := range []string{"a", "b"} {
		r.artifact(name, "v1", "application/vnd.oci.empty.v1+json", "{}", manifest.MediaTypeWasm, moduleBytes(name))
	}
	a, b := s.mustPull(r.host+"/a:v1", ""), s.mustPull(r.host+"/b:v1", "")
	if a.ID == b.ID || a.Module.Digest == b.Module.Digest {
		t.Errorf("two modules have become one: %s", a.ID)
	}
}

func TestPullRefusesWhatCannotRun(t *testing.T) {
	tests := []struct {
		name    string
		modules [][]byte
		text    []string
	}{
		{"two layers", [][]byte{moduleBytes("a"), moduleBytes("b")}, []string{"exactly one layer, this one has 2"}},
		{"no layer", nil, []string{"exactly one layer, this one has 0"}},
		{"text", [][]byte{[]byte("(module)")}, []string{"not a WebAssembly module"}},
		{"cut short", [][]byte{[]byte("\x00asm")}, []string{"not a WebAssembly module"}},
		{"another version", [][]byte{[]byte("\x00asm\x02\x00\x00\x00")}, []string{"WebAssembly binary version 02000000 is not known"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, s := newTestRegistry(t), newTestService(t)
			r.artifact("mod", "v1", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, tt.modules...)
			for _, handler := range []string{"", "wasm"} {
				_, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/mod:v1", Handler: handler})
				if !errdefs.IsInvalidArgument(err) {
					t.Fatalf("Pull: %v, want ErrInvalidArgument", err)
				}
				for _, text := range tt.text {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("Pull: %v; want %q in it", err, text)
					}
				}
			}
			if list, _ := s.List(t.Context()); len(list) != 0 || len(s.arrived) != 0 {
				t.Errorf("%d images, arrived %q", len(list), s.arrived)
			}
		})
	}
}

func TestArrivedMayRefuse(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	r.artifact("mod", "v1", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, moduleBytes("x"))
	req := PullRequest{Ref: r.host + "/mod:v1"}
	s.refuse = errors.Join(errors.New("imports env.magic"), errdefs.ErrInvalidArgument)
	if _, err := s.Pull(t.Context(), req); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "imports env.magic") {
		t.Errorf("Pull: %v, want the hook's error", err)
	}
	s.refuse = errors.New("no room for the cache")
	if _, err := s.Pull(t.Context(), req); err != nil {
		t.Errorf("Pull: %v; another error of the hook must not matter", err)
	}
	s.refuse = nil
	s.mustPull(req.Ref, "")
	if len(s.arrived) != 2 {
		t.Errorf("Arrived was called %d times, want 2", len(s.arrived))
	}
}

// An index may hold a variant that does not run next to one that does.
func TestRefusedVariantDoesNotStandInTheWay(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	host := r.image("app", "", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "app", content: "x"}))
	text := r.artifact("app", "", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, []byte("(module)"))
	r.index("app", "v1", host, text)
	ref := r.host + "/app:v1"
	img := s.mustPull(ref, "")
	if img.Manifest.Digest != host.Digest {
		t.Errorf("answered %s", img.Manifest.Digest)
	}
	r.asked()
	s.mustPull(ref, "")
	if n := countBlobs(r.asked()); n != 0 {
		t.Errorf("%d blobs fetched again", n)
	}
	_, err := s.ForContainer(t.Context(), img.ID, ref, "wasm")
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "not a WebAssembly module") {
		t.Errorf("ForContainer: %v", err)
	}
	if _, err := s.Pull(t.Context(), PullRequest{Ref: ref, Handler: "wasm"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Pull for wasm: %v", err)
	}
}

// An artifact whose configuration says that it is a component is of the platform wasip2/wasm, which
// a handler for guests takes where there is no module.
func TestComponentArtifact(t *testing.T) {
	const config = `{"os":"wasip2","architecture":"wasm","layerDigests":[$LAYERS],"component":{"imports":["wasi:io/error@0.2.6"],"exports":["wasi:cli/run@0.2.6"],"target":null}}`
	r, s := newTestRegistry(t), newTestService(t)
	r.artifact("comp", "v1", manifest.MediaTypeWasmConfig, config, manifest.MediaTypeWasm, componentBytes())
	if img := s.mustPull(r.host+"/comp:v1", "wasm"); img.Kind != Module || platforms.FormatAll(img.Platform) != "wasip2/wasm" {
		t.Errorf("pulled for wasm: %+v", img)
	}
	if _, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/comp:v1", Handler: "runc"}); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "the image is for wasip2/wasm, not for") {
		t.Errorf("pulled for runc: %v", err)
	}
	component := r.artifact("both", "", manifest.MediaTypeWasmConfig, config, manifest.MediaTypeWasm, componentBytes())
	component.Platform = &manifest.ComponentPlatform
	module := r.artifact("both", "", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, moduleBytes("m"))
	r.index("both", "v1", component, module)
	if img := s.mustPull(r.host+"/both:v1", "wasm"); img.Manifest.Digest != module.Digest {
		t.Errorf("of both the component was chosen: %+v", img)
	}
	mine := newTestService(t)
	mine.close()
	mine.options.Handlers = variant.Handlers{{Name: "mine", Default: true, Platforms: []ocispec.Platform{manifest.ComponentPlatform}}}
	mine.open()
	mine.mustPull(r.host+"/comp:v1", "")
	r.artifact("mod", "v1", manifest.MediaTypeWasmConfig, config, manifest.MediaTypeWasm, moduleBytes("not what it says"))
	img := mine.mustPull(r.host+"/mod:v1", "")
	want := &manifest.Component{Imports: []string{"wasi:io/error@0.2.6"}, Exports: []string{"wasi:cli/run@0.2.6"}}
	if platforms.FormatAll(img.Platform) != "wasip2/wasm" || !reflect.DeepEqual(img.Component, want) {
		t.Errorf("platform %+v, component %+v", img.Platform, img.Component)
	}
}

func TestArtifactInAnIndexWithoutAPlatform(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	host := r.image("app", "", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "app", content: "x"}))
	mod := r.artifact("app", "", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, moduleBytes("x"))
	mod.Platform = nil
	signature := r.document("app", "", ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: r.blob("app", ocispec.MediaTypeImageConfig, []byte("{}")),
		Layers: []ocispec.Descriptor{r.blob("app", "application/vnd.dev.cosign.simplesigning.v1+json", []byte("{}"))},
	})
	nested := r.index("app", "", mod, signature)
	nested.Platform = nil
	r.index("app", "v1", nested, host)
	s.mustPull(r.host+"/app:v1", "")
	if img := s.mustFind(r.host+"/app:v1", "wasm"); img.Kind != Module {
		t.Errorf("wasm variant is %+v", img)
	}
}
