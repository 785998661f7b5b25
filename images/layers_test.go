package images

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/unpack"
)

// As many layers as overlayfs takes make an image, and it can be run and read;
// one more is refused before any layer is fetched.
func TestImagesOfManyLayers(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	layersOf := func(n int) (layers []layer) {
		for i := range n {
			layers = append(layers, plainLayer(t, file{name: fmt.Sprint("f", i), content: "1"}, file{name: "last", content: fmt.Sprint(i)}))
		}
		return layers
	}
	most := layersOf(unpack.MaxLayers)
	for _, n := range []int{300, unpack.MaxLayers} {
		repo := fmt.Sprint("many", n)
		r.image(repo, "v1", hostPlatform, ocispec.ImageConfig{}, most[:n]...)
		img := s.mustPull(r.host+"/"+repo+":v1", "")
		if got, last := s.tree(repo, img), fmt.Sprint("last=", n-1); len(got) != n+1 || !slices.Contains(got, last) {
			t.Errorf("%d layers: %d files, want %d with %s", n, len(got), n+1, last)
		}
	}
	one := layersOf(1)
	for _, n := range []int{unpack.MaxLayers + 1, 10_000} {
		repo := fmt.Sprint("many", n)
		r.image(repo, "v1", hostPlatform, ocispec.ImageConfig{}, slices.Repeat(one, n)...)
		r.asked()
		_, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/" + repo + ":v1"})
		want := fmt.Sprintf("the image has %d layers, and overlayfs takes %d; build it with fewer", n, unpack.MaxLayers)
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d layers: %v", n, err)
		}
		if got := countBlobs(r.asked()); got != 1 { // the configuration
			t.Errorf("%d layers: %d blobs were asked for", n, got)
		}
	}
}

// A layer that another pull has unpacked, and brings to disk, is not fetched again.
func TestLayerOnItsWayToDisk(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	var served atomic.Pointer[chan struct{}]
	r.setFront(func(_ http.ResponseWriter, req *http.Request) bool {
		if strings.HasPrefix(req.URL.Path, "/v2/second/") && req.Method == http.MethodGet {
			<-*served.Load()
		}
		return false
	})
	for i := range 60 {
		shared := plainLayer(t, file{name: "shared", content: fmt.Sprint(i, strings.Repeat("s", 100_000))})
		for _, repo := range []string{"first", "second"} {
			r.image(repo, "v1", hostPlatform, ocispec.ImageConfig{}, shared, plainLayer(t, file{name: "own", content: fmt.Sprint(repo, i)}))
		}
		r.asked()
		unpacked := make(chan struct{})
		served.Store(&unpacked)
		ctx := t.Context()
		var pulls sync.WaitGroup
		for _, repo := range []string{"first", "second"} {
			pulls.Go(func() {
				if _, err := s.Pull(ctx, PullRequest{Ref: r.host + "/" + repo + ":v1"}); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Duration(i) * 500 * time.Microsecond)
		close(unpacked)
		pulls.Wait()
		n := 0
		for _, request := range r.asked() {
			if strings.HasSuffix(request, digest.FromBytes(shared.compressed).String()) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("after %d half milliseconds: the layer was fetched %d times", i, n)
		}
	}
}
