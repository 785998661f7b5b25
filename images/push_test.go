package images

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/manifest"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/tests/disk"
)

// changes are the requests of asked that change a registry.
func changes(asked []string) []string {
	return slices.DeleteFunc(asked, func(r string) bool {
		return strings.HasPrefix(r, http.MethodGet+" ") || strings.HasPrefix(r, http.MethodHead+" ")
	})
}

// get is what the registry has at a path.
func (r *testRegistry) get(path string) []byte {
	w := httptest.NewRecorder()
	r.inner.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Body.Bytes()
}

func (ts *testService) mustPush(source, dest string) Pushed {
	ts.t.Helper()
	p, err := ts.Push(ts.t.Context(), PushRequest{Source: source, Dest: dest})
	if err != nil {
		ts.t.Fatal(err)
	}
	return p
}

// imported returns a service with an image that came from an archive, under its name at a registry.
func imported(t *testing.T, dest *testRegistry) (s *testService, ref string, index digest.Digest) {
	t.Helper()
	r, maker := newTestRegistry(t), newTestService(t)
	one := r.image("app", "", hostPlatform, ocispec.ImageConfig{Entrypoint: []string{"/app"}},
		gzipLayer(t, file{name: "app", content: "1"}), zstdLayer(t, file{name: "b", content: strings.Repeat("x", 1<<16)}))
	two := r.image("app", "", "wasip1/wasm", ocispec.ImageConfig{Entrypoint: []string{"/a.wasm"}}, gzipLayer(t, file{name: "a.wasm", content: string(moduleBytes("1"))}))
	index = r.index("app", "v1", one, two).Digest
	maker.mustPull(r.host+"/app:v1", "")
	ref = dest.host + "/team/app:v1"
	if err := maker.Tag(t.Context(), r.host+"/app:v1", []string{ref}); err != nil {
		t.Fatal(err)
	}
	s = newTestService(t)
	if _, err := s.Import(t.Context(), ImportRequest{Path: exportAs(t, maker, r.host+"/app:v1", ref)}); err != nil {
		t.Fatal(err)
	}
	return s, ref, index
}

// exportAs exports an image under another of its names: its layers are fetched by the first.
func exportAs(t *testing.T, s *testService, from, as string) string {
	t.Helper()
	s.options.KeepLayers = true
	s.close()
	s.open()
	s.mustPull(from, "") // brings the layers that were not kept
	return s.export(as)
}

// What came from an archive is pushed without any other source, also after a restart and a garbage
// collection, and another node pulls the very same; a second push sends nothing.
func TestPushOfAnImportedImage(t *testing.T) {
	dest := newTestRegistry(t)
	s, ref, index := imported(t, dest)
	s.close()
	s.open()
	if _, err := s.GC(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	var last Progress
	p, err := s.Push(t.Context(), PushRequest{Source: ref, Progress: func(p Progress) { last = p }})
	if err != nil || p.Name != ref || p.Digest != index || p.Sent != 5 || p.Present != 0 || p.Bytes == 0 || len(p.Omitted) != 0 {
		t.Fatalf("pushed %+v, %v; want 5 blobs of %s", p, err, index)
	}
	if last.Phase != "done" || last.Bytes != p.Bytes || last.BytesTotal != p.Bytes || last.LayersDone != 5 {
		t.Errorf("progress ended as %+v", last)
	}
	dest.asked()
	if again := s.mustPush(ref, ""); again.Sent != 0 || again.Present != 5 || again.Digest != index {
		t.Errorf("pushed again: %+v", again)
	}
	if sent := changes(dest.asked()); len(sent) > 0 {
		t.Errorf("the second push sent %q", sent)
	}
	other := newTestService(t)
	img := other.mustPull(ref, "")
	if want := s.mustFind(ref, "runc"); img.ID != want.ID || img.Manifest.Digest != want.Manifest.Digest {
		t.Errorf("pulled %s, want %s", img.ID, want.ID)
	}
	if got := other.tree("c", img); len(got) != 2 {
		t.Errorf("%d files, want 2", len(got))
	}

	// By id that variant alone, under the name that is given; without one there is none.
	if _, err := s.Push(t.Context(), PushRequest{Source: img.ID}); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "give one") {
		t.Errorf("an id without a name: %v", err)
	}
	if p := s.mustPush(img.ID, "docker://"+dest.host+"/alone"); p.Digest != img.Manifest.Digest || p.Name != dest.host+"/alone:latest" {
		t.Errorf("pushed by id: %+v", p)
	}
	// A name by digest has to be that of what is pushed.
	if _, err := s.Push(t.Context(), PushRequest{Source: ref, Dest: dest.host + "/x@" + digest.FromString("other").String()}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("another digest: %v", err)
	}
	if p := s.mustPush(ref, dest.host+"/x@"+index.String()); p.Digest != index {
		t.Errorf("pushed by digest: %+v", p)
	}
	// A moved tag is put anew.
	if p := s.mustPush(img.ID, ref); p.Digest != img.Manifest.Digest {
		t.Errorf("moved: %+v", p)
	}
	if got := newTestService(t).mustPull(ref, "runc"); got.RepoDigests[0] != dest.host+"/team/app@"+img.Manifest.Digest.String() {
		t.Errorf("the moved name leads to %q", got.RepoDigests)
	}
}

// Layers of a pulled image that were not kept are fetched again for the push, and leave with it;
// without their registry the push is refused before anything is sent.
func TestPushFetchesLayersThatWereNotKept(t *testing.T) {
	r, dest, s := newTestRegistry(t), newTestRegistry(t), newTestService(t)
	m := r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	ref, to := r.host+"/app:v1", dest.host+"/app:v2"
	s.mustPull(ref, "")
	before := s.blobs()
	if p := s.mustPush(ref, to); p.Sent != 2 || p.Digest != m.Digest {
		t.Errorf("pushed %+v, want 2 blobs of %s", p, m.Digest)
	}
	if n := s.blobs(); n != before || s.parts() != 0 {
		t.Errorf("%d blobs and %d parts after the push, %d before", n, s.parts(), before)
	}
	r.server.Close()
	other := newTestRegistry(t)
	_, err := s.Push(t.Context(), PushRequest{Source: ref, Dest: other.host + "/app:v3"})
	if err == nil || !strings.Contains(err.Error(), "push image \""+ref) || !strings.Contains(err.Error(), "or pull it again with images.keep_layers = true") {
		t.Errorf("without its registry: %v", err)
	}
	if sent := changes(other.asked()); len(sent) > 0 {
		t.Errorf("sent before the refusal: %q", sent)
	}
	// Where the registry has everything, nothing is needed.
	if p := s.mustPush(ref, dest.host+"/app:v3"); p.Sent != 0 || p.Present != 2 {
		t.Errorf("pushed where it is: %+v", p)
	}
}

// The registry takes over what another of its repositories has, also what is not on this node.
func TestPushMounts(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	s.mustPull(r.host+"/app:v1", "")
	var mounts []string
	r.setFront(func(w http.ResponseWriter, q *http.Request) bool {
		switch {
		case q.Method == http.MethodHead && strings.HasPrefix(q.URL.Path, "/v2/copy/blobs/"):
			w.WriteHeader(http.StatusNotFound)
		case q.Method == http.MethodPost && q.URL.Query().Get("mount") != "":
			mounts = append(mounts, q.URL.Query().Get("from"))
			w.WriteHeader(http.StatusCreated)
		default:
			return false
		}
		return true
	})
	r.asked()
	if p := s.mustPush(r.host+"/app:v1", r.host+"/copy:v1"); p.Mounted != 2 || p.Sent != 0 {
		t.Errorf("pushed %+v, want 2 mounted", p)
	}
	equal(t, "mounted from", mounts, []string{"app", "app"})
	if n := slices.ContainsFunc(r.asked(), func(q string) bool { return strings.HasPrefix(q, "GET ") }); n {
		t.Error("what was mounted was fetched")
	}
}

// Variants that are not on this node stay in the index where the registry has them; else the index
// has only those that are here, or the push is refused.
func TestPushOfAPartOfAnIndex(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	s.options.KeepLayers = true
	s.close()
	s.open()
	index, host, wasm := appIndex(t, r, "app", "v1", "1")
	ref := r.host + "/app:v1"
	s.mustPull(ref, "")
	if p := s.mustPush(ref, r.host+"/app:v2"); p.Digest != index.Digest || len(p.Omitted) != 0 {
		t.Errorf("pushed to where all is: %+v", p)
	}
	dest := newTestRegistry(t)
	_, err := s.Push(t.Context(), PushRequest{Source: ref, Dest: dest.host + "/app:v1", All: true})
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), otherPlatform) {
		t.Errorf("all of it: %v", err)
	}
	if sent := changes(dest.asked()); len(sent) > 0 {
		t.Errorf("sent before the refusal: %q", sent)
	}
	p := s.mustPush(ref, dest.host+"/app:v1")
	if p.Digest == index.Digest || len(p.Omitted) != 4 || p.Omitted[0] != otherPlatform {
		t.Errorf("pushed %+v", p)
	}
	text := dest.get("/v2/app/manifests/v1")
	var got ocispec.Index
	if err := json.Unmarshal(text, &got); err != nil || digest.FromBytes(text) != p.Digest {
		t.Fatalf("%s: %v", text, err)
	}
	if len(got.Manifests) != 2 || got.Manifests[0].Digest != host.Digest || got.Manifests[1].Digest != wasm.Digest ||
		got.Manifests[1].Platform.Architecture != "wasm" || got.MediaType != ocispec.MediaTypeImageIndex {
		t.Errorf("the index has become %s", text)
	}
	// Of one variant its manifest, so that its digest stays.
	one := newTestService(t)
	one.mustPull(ref, "runc")
	if p := one.mustPush(ref, dest.host+"/one:v1"); p.Digest != host.Digest || len(p.Omitted) == 0 {
		t.Errorf("pushed of one variant: %+v", p)
	}
	// An index within the index is not kept here.
	r.index("nest", "v1", r.index("nest", "", r.image("nest", "", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "n", content: "2"}))))
	nest := s.mustPull(r.host+"/nest:v1", "")
	if _, err := s.GC(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if p := s.mustPush(r.host+"/nest:v1", dest.host+"/nest:v1"); p.Digest != nest.Manifest.Digest {
		t.Errorf("pushed of a nested index: %+v, want %s", p, nest.Manifest.Digest)
	}
}

// A removal and a garbage collection during a push take nothing of it; what nothing needs any more
// is removed at its end.
func TestPushHoldsWhatItSends(t *testing.T) {
	dest := newTestRegistry(t)
	s, ref, index := imported(t, dest)
	var once sync.Once
	removed := false
	remove := func() {
		removed = true
		if _, err := s.Untag(t.Context(), ref, false); err != nil {
			t.Error(err)
		}
		if _, err := s.GC(t.Context(), false); err != nil {
			t.Error(err)
		}
		if _, err := s.Find(t.Context(), ref, ""); !errdefs.IsNotFound(err) {
			t.Errorf("after its removal: %v", err)
		}
	}
	dest.setFront(func(w http.ResponseWriter, q *http.Request) bool {
		if q.Method == http.MethodPost {
			once.Do(remove)
		}
		return false
	})
	if p := s.mustPush(ref, ""); p.Digest != index || p.Sent != 5 || !removed {
		t.Errorf("pushed %+v", p)
	}
	if n := s.blobs(); n != 0 {
		t.Errorf("%d blobs are left", n)
	}
	other := newTestService(t)
	other.mustPull(ref, "")
}

// A push that is interrupted leaves nothing on this node, and the next one completes it.
func TestPushInterrupted(t *testing.T) {
	dest := newTestRegistry(t)
	s, ref, index := imported(t, dest)
	before := s.blobs()
	ctx, cancel := context.WithCancel(t.Context())
	dest.setFront(func(w http.ResponseWriter, q *http.Request) bool {
		if q.Method == http.MethodPut {
			io.Copy(io.Discard, q.Body) // only then does the server see that the client ends
			cancel()
			<-q.Context().Done()
			return true
		}
		return false
	})
	if _, err := s.Push(ctx, PushRequest{Source: ref}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	dest.setFront(nil)
	if n := s.blobs(); n != before || s.parts() != 0 {
		t.Errorf("%d blobs and %d parts, %d before", n, s.parts(), before)
	}
	if p := s.mustPush(ref, ""); p.Digest != index {
		t.Errorf("pushed %+v", p)
	}
}

// What a registry answers is shown, and a stranger gets no credentials.
func TestPushRefused(t *testing.T) {
	dest, stranger := newTestRegistry(t), newTestRegistry(t)
	s, ref, _ := imported(t, dest)
	var mu sync.Mutex
	var secrets []string
	stranger.setFront(func(_ http.ResponseWriter, q *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		secrets = append(secrets, q.Header.Get("Authorization"))
		return false
	})
	auth := registry.Credentials{Username: "me", Password: "secret-word"}
	for name, tt := range map[string]struct {
		front func(http.ResponseWriter, *http.Request) bool
		class func(error) bool
		text  string
	}{
		"credentials": {func(w http.ResponseWriter, q *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}, errdefs.IsUnauthorized, "the registry refused the credentials"},
		"escapes": {func(w http.ResponseWriter, q *http.Request) bool {
			if q.Method != http.MethodPost {
				return false
			}
			w.WriteHeader(http.StatusForbidden)
			w.Write([]byte(`{"errors":[{"code":"DENIED","message":"no\u001b[31m\nentry"}]}`))
			return true
		}, errdefs.IsPermissionDenied, `no\x1b[31m; entry`},
		"elsewhere": {func(w http.ResponseWriter, q *http.Request) bool {
			if q.Header.Get("Authorization") == "" { // asks for them first
				w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			if q.Method != http.MethodPost {
				return false
			}
			w.Header().Set("Location", "http://"+stranger.host+"/v2/x/blobs/uploads/1")
			w.WriteHeader(http.StatusAccepted)
			return true
		}, func(err error) bool { return err == nil }, ""},
	} {
		dest.setFront(tt.front)
		_, err := s.Push(t.Context(), PushRequest{Source: ref, Auth: auth})
		if err == nil && tt.class(err) {
			continue
		}
		if err == nil || !tt.class(err) || !strings.Contains(err.Error(), tt.text) || strings.ContainsAny(err.Error(), "\x1b\n") || strings.Contains(err.Error(), "secret-word") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(secrets) == 0 || slices.ContainsFunc(secrets, func(s string) bool { return s != "" }) {
		t.Errorf("the stranger got credentials: %q", secrets)
	}
	if _, err := s.Push(t.Context(), PushRequest{Source: "example.org/absent"}); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), `push image "example.org/absent"`) {
		t.Errorf("absent: %v", err)
	}
	if _, err := s.Push(t.Context(), PushRequest{Source: ref, Dest: "UPPER"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("bad name: %v", err)
	}
}

// Layers that were dropped come back with a pull once they are to be kept, and only they.
func TestPullBringsBackLayersThatAreToBeKept(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	l := gzipLayer(t, file{name: "a", content: "1"})
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, l, gzipLayer(t, file{name: "b", content: "2"}))
	ref := r.host + "/app:v1"
	id := s.mustPull(ref, "").ID
	path := s.disk.Content.Path(digest.FromBytes(l.compressed))
	if _, err := os.Stat(path); err == nil {
		t.Fatal("the layer is kept, nothing is tested")
	}
	s.options.KeepLayers = true
	s.close()
	s.open()
	r.asked()
	if img := s.mustPull(ref, ""); img.ID != id {
		t.Errorf("pulled %s, want %s", img.ID, id)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if n := countBlobs(r.asked()); n != 2 {
		t.Errorf("%d blobs were asked for, want 2", n)
	}
	s.mustPull(ref, "")
	if n := countBlobs(r.asked()); n != 0 {
		t.Errorf("%d blobs were asked for by the pull after it", n)
	}
	r.server.Close()
	s.export(ref)
}

// A node has the layers of an image as one manifest packs them, and finds those of another packing
// where their repository has them: they are mounted, or fetched again.
func TestPushOfASecondPacking(t *testing.T) {
	f := file{name: "a", content: "1"}
	two := zstdLayer(t, f)
	pulled := func(t *testing.T) (r *testRegistry, s *testService, m ocispec.Descriptor) {
		r, s = newTestRegistry(t), newTestService(t)
		r.image("one", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, f))
		m = r.image("two", "v1", hostPlatform, ocispec.ImageConfig{}, two)
		if one, other := s.mustPull(r.host+"/one:v1", ""), s.mustPull(r.host+"/two:v1", ""); one.ID != other.ID {
			t.Fatal("they are two images, nothing is tested")
		}
		return r, s, m
	}
	t.Run("fetched", func(t *testing.T) {
		r, s, m := pulled(t)
		dest := newTestRegistry(t)
		before := s.blobs()
		if p, err := s.Push(t.Context(), PushRequest{Source: r.host + "/two:v1", Dest: dest.host + "/x:v1"}); err != nil || p.Digest != m.Digest || p.Sent != 2 {
			t.Errorf("pushed %+v, %v", p, err)
		}
		if n := s.blobs(); n != before {
			t.Errorf("%d blobs after the push, %d before", n, before)
		}
	})
	t.Run("mounted", func(t *testing.T) {
		r, s, m := pulled(t)
		var mounted []string
		r.setFront(func(w http.ResponseWriter, q *http.Request) bool {
			switch {
			case q.Method == http.MethodHead && strings.HasPrefix(q.URL.Path, "/v2/copy/blobs/"):
				w.WriteHeader(http.StatusNotFound)
			case q.Method == http.MethodPost && q.URL.Query().Get("mount") != "":
				if q.URL.Query().Get("mount") == digest.FromBytes(two.compressed).String() {
					mounted = append(mounted, q.URL.Query().Get("from"))
				}
				w.WriteHeader(http.StatusCreated)
			default:
				return false
			}
			return true
		})
		if p, err := s.Push(t.Context(), PushRequest{Source: r.host + "/two:v1", Dest: r.host + "/copy:v1"}); err != nil || p.Digest != m.Digest || p.Mounted != 2 {
			t.Errorf("pushed %+v, %v", p, err)
		}
		equal(t, "the layer is mounted from", mounted, []string{"two"})
	})
}

// What the registry has of an index with variants that are not on this node is not left out.
func TestPushOfAPartThatTheRegistryHas(t *testing.T) {
	r, dest, s := newTestRegistry(t), newTestRegistry(t), newTestService(t)
	index, host, wasm := appIndex(t, r, "app", "v1", "1")
	s.mustPull(r.host+"/app:v1", "")
	other := dest.image("app", "", otherPlatform, ocispec.ImageConfig{Entrypoint: []string{"/app"}, Env: []string{"V=1"}, User: "65532"},
		gzipLayer(t, file{name: "app", content: "other 1"}))
	p := s.mustPush(r.host+"/app:v1", dest.host+"/app:v1")
	if slices.Contains(p.Omitted, otherPlatform) || len(p.Omitted) != 3 || p.Digest == index.Digest {
		t.Errorf("pushed %+v", p)
	}
	var got ocispec.Index
	if err := json.Unmarshal(dest.get("/v2/app/manifests/v1"), &got); err != nil {
		t.Fatal(err)
	}
	var digests []string
	for _, m := range got.Manifests {
		digests = append(digests, m.Digest.String())
	}
	equal(t, "the index has", digests, []string{host.Digest.String(), wasm.Digest.String(), other.Digest.String()})
	if got.Manifests[2].Platform.Architecture != other.Platform.Architecture {
		t.Errorf("the platform of what the registry had: %+v", got.Manifests[2].Platform)
	}
	// All of it is not refused then, and another node may have it.
	if _, err := s.Push(t.Context(), PushRequest{Source: r.host + "/app:v1", Dest: dest.host + "/app:v2", All: true}); err != nil {
		t.Error(err)
	}
}

// Indexes within an index are sent after what they name, and once, also where several name the
// same.
func TestPushOfNestedIndexes(t *testing.T) {
	r, dest, s := newTestRegistry(t), newTestRegistry(t), newTestService(t)
	s.options.KeepLayers = true
	s.close()
	s.open()
	m := r.image("nest", "", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "n", content: "2"}))
	inner := r.index("nest", "", m)
	middle := r.index("nest", "", inner, m)
	root := r.index("nest", "v1", m, middle, inner)
	s.mustPull(r.host+"/nest:v1", "")
	if p := s.mustPush(r.host+"/nest:v1", dest.host+"/nest:v1"); p.Digest != root.Digest || len(p.Omitted) > 0 {
		t.Errorf("pushed %+v", p)
	}
	var sent []string
	for _, q := range changes(dest.asked()) {
		if _, name, ok := strings.Cut(q, "PUT /v2/nest/manifests/"); ok {
			sent = append(sent, name)
		}
	}
	equal(t, "sent", sent, []string{m.Digest.String(), inner.Digest.String(), middle.Digest.String(), "v1"})
	newTestService(t).mustPull(dest.host+"/nest:v1", "")
}

// A blob that stands where a manifest or an index is to be is not read into memory if it is too
// large for one.
func TestPushOfATooLargeDocument(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	s.options.KeepLayers = true
	s.close()
	s.open()
	big := plainLayer(t, file{name: "n", content: strings.Repeat("x", manifest.MaxDocument+1)})
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, big)
	s.mustPull(r.host+"/app:v1", "")
	s.mustHave(big)
	err := s.disk.DB.Update(func(tx *store.Tx) error { // no pull brings it
		for _, known := range tx.Targets {
			root := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromBytes(big.compressed), Size: int64(len(big.compressed))}
			evil := store.Target{Repo: "example.org/evil", Digest: root.Digest, Root: root, Entries: known.Entries, Images: known.Images}
			keep := func(store.Target, store.Target, string) bool { return false }
			tx.AddTarget(evil, keep)
			tx.PointTag("example.org/evil:1", evil.Name(), keep)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	dest := newTestRegistry(t)
	if _, err = s.Push(t.Context(), PushRequest{Source: "example.org/evil:1", Dest: dest.host + "/x:v1"}); err == nil || !strings.Contains(err.Error(), "bytes is larger than") {
		t.Errorf("%v", err)
	}
	if sent := changes(dest.asked()); len(sent) > 0 {
		t.Errorf("sent %q", sent)
	}
}

// A push that has to fetch layers again says that the disk is full, and leaves nothing; what is
// here is pushed from a full disk.
func TestPushFromAFullDisk(t *testing.T) {
	small := disk.New(t, t.TempDir(), 64)
	r, s := newTestRegistry(t), openTestService(t, filepath.Join(small, "images"))
	data := make([]byte, 4<<20)
	rand.Read(data)
	r.image("gone", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: string(data)}))
	r.image("kept", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "b", content: "2"}))
	s.mustPull(r.host+"/gone:v1", "")
	s.mustImport(archiveOf(t, r.host+"/kept:v1"))
	before := s.blobs()
	free := disk.TakeBytes(t, small)
	dest := newTestRegistry(t)
	_, err := s.Push(t.Context(), PushRequest{Source: r.host + "/gone:v1", Dest: dest.host + "/gone:v1"})
	if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "has no room") || strings.Contains(err.Error(), "keep_layers") {
		t.Errorf("fetched again: %v", err)
	}
	if sent := changes(dest.asked()); len(sent) > 0 {
		t.Errorf("sent %q", sent)
	}
	if n := s.blobs(); n != before || s.parts() != 0 {
		t.Errorf("%d blobs and %d parts, %d before", n, s.parts(), before)
	}
	if p := s.mustPush(r.host+"/kept:v1", dest.host+"/kept:v1"); p.Sent != 2 {
		t.Errorf("pushed %+v", p)
	}
	free()
	if p := s.mustPush(r.host+"/gone:v1", dest.host+"/gone:v1"); p.Sent != 2 {
		t.Errorf("pushed %+v", p)
	}
	s.check()
}
