package images

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// One image has one id, whatever it is called and wherever it came from, and is
// found by all of its names until one of them is removed.
func TestNamesOfOneImage(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	l := gzipLayer(t, file{name: "app", content: "x"})
	var d ocispec.Descriptor
	for _, at := range []string{"one:a", "one:b", "two/deep:a", "one:latest"} {
		repo, tag, _ := strings.Cut(at, ":")
		d = r.image(repo, tag, hostPlatform, ocispec.ImageConfig{User: "7"}, l)
	}
	other := strings.Replace(r.host, "127.0.0.1", "localhost", 1) // another registry by name
	pull := []string{
		r.host + "/one:a", r.host + "/one:b", r.host + "/two/deep:a", r.host + "/one", other + "/one:a",
		r.host + "/one@" + d.Digest.String(), r.host + "/one:gone@" + d.Digest.String(),
	}
	all := func() (id string) {
		for _, ref := range pull {
			img := s.mustPull(ref, "")
			if id != "" && img.ID != id {
				t.Errorf("%s has id %s, not %s", ref, img.ID, id)
			}
			id = img.ID
		}
		return id
	}
	id := all()
	found := append([]string{id, id[7:], id[:20], id[7:12], other + "/one@" + d.Digest.String()}, pull...)
	for _, name := range found {
		img, err := s.Find(t.Context(), name, "")
		if err != nil || img.ID != id || len(img.RepoTags) != 5 || len(img.RepoDigests) != 3 || img.Size == 0 {
			t.Errorf("%s: %+v, %v", name, img, err)
		}
	}
	for _, name := range []string{id[7:10], "one", other + "/one:b", "sha256:" + strings.Repeat("0", 64)} {
		if _, err := s.Find(t.Context(), name, ""); !errdefs.IsNotFound(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range found {
		if got := all(); got != id {
			t.Fatalf("the id became %s", got)
		}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if err := s.Remove(t.Context(), name); err != nil {
					t.Errorf("Remove(%s): %v", name, err)
				}
			})
		}
		wg.Wait()
		if list, err := s.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("after Remove(%s): %d images, %v", name, len(list), err)
		}
		if b, l := s.blobs(), s.layerDirs(); b != 0 || l != 0 {
			t.Errorf("after Remove(%s): %d blobs and %d layers", name, b, l)
		}
	}
}

// An image may be named by other digests than sha256, also where its registry answers with that
// one.
func TestImageBySHA512(t *testing.T) {
	l := gzipLayer(t, file{name: "app", content: "x"})
	content := map[string][]byte{}
	of := func(mediaType string, v any) ocispec.Descriptor {
		data, ok := v.([]byte)
		if !ok {
			var err error
			if data, err = json.Marshal(v); err != nil {
				t.Fatal(err)
			}
		}
		d := digest.SHA512.FromBytes(data)
		content[d.String()] = data
		return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
	}
	c := ocispec.Image{Platform: parsePlatforms(t, hostPlatform)[0]}
	c.RootFS.DiffIDs = []digest.Digest{l.diff}
	root := of(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest, Config: of(ocispec.MediaTypeImageConfig, c),
		Layers: []ocispec.Descriptor{of(l.mediaType, l.compressed)},
	})
	r, s := newTestRegistry(t), newTestService(t)
	r.setFront(func(w http.ResponseWriter, q *http.Request) bool {
		data, ok := content[path.Base(q.URL.Path)]
		if path.Base(q.URL.Path) == "v1" {
			data, ok = content[root.Digest.String()], true
		}
		if !ok {
			return false
		}
		w.Header().Set("Docker-Content-Digest", digest.FromBytes(data).String())
		if path.Base(q.URL.Path) == "v1" {
			w.Header().Set("Docker-Content-Digest", root.Digest.String())
		}
		w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		w.Write(data)
		return true
	})
	s.options.KeepLayers = true
	s.close()
	s.open()
	for _, ref := range []string{r.host + "/app:v1", r.host + "/app@" + root.Digest.String()} {
		img := s.mustPull(ref, "")
		for _, name := range []string{ref, img.ID, img.ID[7:], img.ID[:20]} {
			if got, err := s.Find(t.Context(), name, ""); err != nil || got.ID != img.ID {
				t.Errorf("Find(%s): %v", name, err)
			}
			if got, err := s.ForContainer(t.Context(), name, ref, ""); err != nil || got.ID != img.ID {
				t.Errorf("ForContainer(%s): %v", name, err)
			}
		}
		equal(t, "tree", s.tree(img.ID[7:17]+path.Base(ref)[:2], img), []string{"app=x"})
		var buf bytes.Buffer
		if err := s.ExportTo(t.Context(), []string{ref}, &buf); err != nil {
			t.Errorf("export: %v", err)
		}
		if err := s.Remove(t.Context(), img.ID); err != nil {
			t.Error(err)
		}
		if left := s.count("content/blobs/sha512"); left != 0 {
			t.Errorf("%d blobs are left", left)
		}
		if imgs, err := s.Import(t.Context(), ImportRequest{Reader: &buf, Name: "other.example/app:v2"}); err != nil || len(imgs) != 1 {
			t.Errorf("import: %d, %v", len(imgs), err)
		}
	}
}
