package images

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/registry"
)

// Whoever counts pulls is told of each, with the bytes that came of the registry, and once of equal
// pulls at one time.
func TestPullsAreTold(t *testing.T) {
	type ended struct {
		bytes int64
		err   error
	}
	var mu sync.Mutex
	var all []ended
	told := func() []ended {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
	r, s := newTestRegistry(t), newTestService(t)
	s.close()
	s.options.Pulled = func(took time.Duration, bytes int64, err error) {
		mu.Lock()
		defer mu.Unlock()
		if took <= 0 {
			t.Errorf("a pull took %s", took)
		}
		all = append(all, ended{bytes, err})
	}
	s.open()
	layer := plainLayer(t, file{name: "a", content: strings.Repeat("1", 10000)})
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, layer)
	proceed := make(chan struct{})
	r.setFront(func(_ http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(req.URL.Path, "/blobs/") {
			<-proceed
		}
		return false
	})
	var pulls sync.WaitGroup
	for range 3 {
		pulls.Go(func() { s.mustPull(r.host+"/app:v1", "") })
	}
	time.Sleep(50 * time.Millisecond) // they join within it, or come after it and fetch nothing
	close(proceed)
	pulls.Wait()
	first := told()
	if len(first) == 0 || first[0].err != nil || first[0].bytes < 10000 || first[0].bytes > 20000 {
		t.Fatalf("told %+v", first)
	}
	for _, later := range first[1:] {
		if later.bytes > 2000 || later.err != nil { // the manifest
			t.Errorf("an equal pull was told as %+v", later)
		}
	}
	if _, err := s.Pull(t.Context(), PullRequest{Ref: "127.0.0.1:1/app:v1"}); err == nil {
		t.Error("an image of no registry was pulled")
	}
	last := told()
	if n := len(last); n != len(first)+1 || last[n-1].bytes != 0 || !strings.HasPrefix(last[n-1].err.Error(), registry.UnavailablePrefix) {
		t.Errorf("told %+v", last)
	}
	if _, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/app:none"}); err == nil {
		t.Error("a tag that is not there was pulled")
	}
	if last = told(); last[len(last)-1].err == nil || len(last) != len(first)+2 {
		t.Errorf("told %+v", last)
	}
}
