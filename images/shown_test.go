package images

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
)

// documentOf reads a document of the store, as one who has pulled the image knows it.
func (ts *testService) documentOf(d digest.Digest, into any) {
	ts.t.Helper()
	data, err := os.ReadFile(ts.disk.Content.Path(d))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		ts.t.Fatal(err)
	}
}

// liar serves what a registry has, an index of a manifest that it has not, and of what else is
// known it says that it is there: with a digest, and no content.
func liar(r *testRegistry, manifest ocispec.Descriptor, known map[digest.Digest]ocispec.Descriptor) {
	index, err := json.Marshal(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{manifest}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.setFront(func(w http.ResponseWriter, req *http.Request) bool {
		if strings.HasSuffix(req.URL.Path, "/manifests/index") || strings.HasSuffix(req.URL.Path, digest.FromBytes(index).String()) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
			w.Header().Set("Docker-Content-Digest", digest.FromBytes(index).String())
			w.Header().Set("Content-Length", fmt.Sprint(len(index)))
			w.Write(index)
			return true
		}
		for d, desc := range known {
			if strings.HasSuffix(req.URL.Path, d.String()) || strings.HasSuffix(req.URL.Path, "/manifests/lie") && desc.MediaType == ocispec.MediaTypeImageManifest {
				w.Header().Set("Content-Type", desc.MediaType)
				w.Header().Set("Docker-Content-Digest", d.String())
				w.Header().Set("Content-Length", fmt.Sprint(desc.Size))
				if req.Method != http.MethodHead {
					w.WriteHeader(http.StatusNotFound)
				}
				return true
			}
		}
		return false
	})
}

// Whoever knows the digests of somebody's image, and has a registry that says whatever is wanted,
// does not get the image.
func TestAnImageThatIsPresentIsNotGivenAway(t *testing.T) {
	for _, kind := range []string{"files", "module"} {
		for _, policy := range []Verification{VerifyPrivate, VerifyAlways, VerifyNever} {
			t.Run(kind+" "+string(policy), func(t *testing.T) { testGivenAway(t, kind, policy) })
		}
	}
}

func testGivenAway(t *testing.T, kind string, policy Verification) {
	r, evil, s := newTestRegistry(t), newTestRegistry(t), newTestService(t)
	reopen := func(v Verification) {
		s.close()
		s.options.Verification = v
		s.open()
	}
	reopen(policy)
	var desc ocispec.Descriptor
	if kind == "module" {
		desc = r.artifact("mine", "v1", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, moduleBytes("secret"))
	} else {
		desc = r.image("mine", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "secret", content: "1"}))
	}
	r.setFront(private)
	mine, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/mine:v1", Auth: userAuth("u"), Namespace: "victim"})
	if err != nil {
		t.Fatal(err)
	}
	var m ocispec.Manifest
	var config ocispec.Image
	s.documentOf(desc.Digest, &m)
	s.documentOf(m.Config.Digest, &config)

	known := map[digest.Digest]ocispec.Descriptor{desc.Digest: desc, m.Config.Digest: m.Config, m.Layers[0].Digest: m.Layers[0]}
	liar(evil, desc, known)
	copied := m
	copied.Annotations = map[string]string{"a": "copy"}
	evil.document("evil", "copy", ocispec.MediaTypeImageManifest, copied)
	copied.Layers = nil
	evil.document("evil", "empty", ocispec.MediaTypeImageManifest, copied)
	tags := []string{"copy", "index", "empty", "lie"}
	if kind == "files" { // its own configuration on top of what somebody else's layers unpack to
		own := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
		config.Author = "evil"
		data, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		own.Config = evil.blob("evil", ocispec.MediaTypeImageConfig, data)
		own.Layers = []ocispec.Descriptor{evil.blob("evil", ocispec.MediaTypeImageLayerGzip, gzipLayer(t, file{name: "other", content: "2"}).compressed)}
		evil.document("evil", "layer", ocispec.MediaTypeImageManifest, own)
		own.Layers = m.Layers
		evil.document("evil", "named", ocispec.MediaTypeImageManifest, own)
		tags = append(tags, "layer", "named")
	}
	for _, tag := range tags {
		req := PullRequest{Ref: evil.host + "/evil:" + tag, Namespace: "thief"}
		got, err := s.Pull(t.Context(), req)
		if policy != VerifyNever && err == nil {
			t.Errorf("%s: pulled", tag)
		}
		if policy == VerifyNever && err == nil {
			// The same store under another policy: what nobody has shown is nobody's.
			reopen(VerifyPrivate)
			if err := s.Permit(got, "thief"); !errdefs.IsPermissionDenied(err) {
				t.Errorf("%s: permitted later: %v", tag, err)
			}
			if _, err := s.Pull(t.Context(), req); err == nil {
				t.Errorf("%s: pulled later", tag)
			}
			reopen(VerifyNever)
		}
	}
	if policy == VerifyNever {
		reopen(VerifyPrivate)
	}
	if err := s.Permit(mine, "thief"); !errdefs.IsPermissionDenied(err) {
		t.Errorf("permitted to the thief: %v", err)
	}
	if err := s.Permit(mine, "victim"); err != nil {
		t.Errorf("to the owner: %v", err)
	}
}

// Who does hold a copy of an image gets it, once the copy has been seen; and what is anybody's is
// not fetched twice.
func TestAnImageInTwoRepositories(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	s.close()
	s.options.Verification = VerifyPrivate
	s.open()
	base := gzipLayer(t, file{name: "base", content: strings.Repeat("b", 10000)})
	own := gzipLayer(t, file{name: "own", content: "1"})
	for _, repo := range []string{"one", "two"} {
		r.image(repo, "v1", hostPlatform, ocispec.ImageConfig{}, base, own)
	}
	r.image("open", "v1", hostPlatform, ocispec.ImageConfig{}, base)
	r.image("one", "v2", hostPlatform, ocispec.ImageConfig{}, base, own, gzipLayer(t, file{name: "more", content: "2"}))
	r.setFront(private)
	pull := func(ref, user, namespace string, blobs int) {
		t.Helper()
		r.asked()
		req := PullRequest{Ref: r.host + "/" + ref, Namespace: namespace}
		if user != "" {
			req.Auth = userAuth(user)
		}
		img, err := s.Pull(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Permit(img, namespace); err != nil {
			t.Errorf("%s: %v", ref, err)
		}
		served := 0
		for _, q := range r.asked() {
			if strings.HasPrefix(q, "GET") && strings.Contains(q, "/blobs/") {
				served++
			}
		}
		if served/2 > blobs { // each is asked for twice: before credentials are wanted, and after
			t.Errorf("%s: %d requests for blobs, want two for each of %d", ref, served, blobs)
		}
	}
	pull("open:v1", "", "a", 2)
	pull("one:v1", "u", "a", 2) // its configuration and its own layer
	pull("one:v1", "u", "b", 0) // the same manifest
	pull("two:v1", "u", "a", 0) // the same credentials
	pull("two:v1", "v", "c", 0) // the same manifest
	pull("one:v2", "u", "a", 2) // shares layers with what the same credentials brought
	pull("two:v1", "u", "b", 0)
	r.image("three", "v1", hostPlatform, ocispec.ImageConfig{}, base, own)
	pull("three:v1", "w", "d", 2) // others: configuration and layer are seen again
	pull("three:v1", "w", "d", 0)
}

// Properties of a manifest are that manifest's, whoever else names the same configuration.
func TestAnnotationsOfAnotherManifest(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	linux := r.image("public", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	r.artifact("public", "mod", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, moduleBytes("m"))
	copied := func(tag string, annotations map[string]string, title string) {
		t.Helper()
		var m ocispec.Manifest
		got := s.mustPull(r.host+"/public:"+tag, "")
		s.documentOf(got.Manifest.Digest, &m)
		if err := s.Remove(t.Context(), got.ID); err != nil {
			t.Fatal(err)
		}
		m.Annotations = annotations
		for i := range m.Layers {
			m.Layers[i].Annotations = map[string]string{ocispec.AnnotationTitle: title}
		}
		r.document("evil", tag, ocispec.MediaTypeImageManifest, m)
	}
	copied("v1", map[string]string{"org.criu.checkpoint.container.name": "gotcha"}, "")
	copied("mod", nil, "evil.wasm")
	for _, first := range []string{"evil", "public"} {
		second := map[string]string{"evil": "public", "public": "evil"}[first]
		for _, tag := range []string{"v1", "mod"} {
			s.mustPull(r.host+"/"+first+":"+tag, "")
			s.mustPull(r.host+"/"+second+":"+tag, "")
		}
		img, bad := s.mustFind(r.host+"/public:v1", ""), s.mustFind(r.host+"/evil:v1", "")
		if img.Checkpoint != "" || img.Manifest.Digest != linux.Digest {
			t.Errorf("%s first: public:v1 is a checkpoint of %q, manifest %s", first, img.Checkpoint, img.Manifest.Digest)
		}
		if bad.Checkpoint != "gotcha" || bad.ID == img.ID {
			t.Errorf("%s first: evil:v1 is %s, checkpoint %q", first, bad.ID, bad.Checkpoint)
		}
		for repo, want := range map[string]string{"public": "public.wasm", "evil": "evil.wasm"} {
			mod, err := s.ForContainer(t.Context(), s.mustFind(r.host+"/public:mod", "").ID, r.host+"/"+repo+":mod", "wasm")
			if err != nil || mod.Module.Annotations[ocispec.AnnotationTitle] != want {
				t.Errorf("%s first: the module of %s:mod is called %q, %v", first, repo, mod.Module.Annotations, err)
			}
			if err := s.ExportTo(t.Context(), []string{r.host + "/" + repo + ":v1"}, io.Discard); err != nil {
				t.Errorf("%s first: export %s: %v", first, repo, err)
			}
		}
		for _, name := range []string{"public:v1", "evil:v1", "public:mod"} {
			if err := s.Remove(t.Context(), r.host+"/"+name); err != nil {
				t.Fatal(err)
			}
		}
		if st := s.disk.DB.State(); len(st.Images)+len(st.Targets)+len(st.Tags)+len(st.Grants) > 0 {
			t.Errorf("left: %+v", st)
		}
	}
}

// A configuration that names several modules is no name for one of them.
func TestAConfigurationOfSeveralModules(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	one, two := moduleBytes("one"), moduleBytes("two")
	both := strings.Replace(wasmConfig, "$LAYERS", `"`+digest.FromBytes(one).String()+`","`+digest.FromBytes(two).String()+`"`, 1)
	r.artifact("mod", "one", manifest.MediaTypeWasmConfig, both, manifest.MediaTypeWasm, one)
	r.artifact("mod", "two", manifest.MediaTypeWasmConfig, both, manifest.MediaTypeWasm, two)
	first := s.mustPull(r.host+"/mod:one", "")
	second := s.mustPull(r.host+"/mod:two", "")
	if first.ID == second.ID || second.Module.Digest != digest.FromBytes(two) {
		t.Errorf("both are %s, %s", first.ID, second.Module.Digest)
	}
}
