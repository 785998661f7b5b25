package images

import (
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
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
