package images

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
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
