package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/node"
	"github.com/sunaba-project/sunaba/tests/oci"
)

// lair is a registry of an attacker's making.
type lair struct {
	t    *testing.T
	host string

	mu    sync.Mutex
	docs  map[string][]byte           // by the end of a path: manifests, indexes, configurations
	types map[string]string           // their media types
	does  map[string]http.HandlerFunc // what else it does
	asked int
}

func newLair(t *testing.T) *lair {
	l := &lair{t: t, docs: map[string][]byte{}, types: map[string]string{}, does: map[string]http.HandlerFunc{}}
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	l.host = strings.TrimPrefix(server.URL, "http://")
	return l
}

func (l *lair) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	l.mu.Lock()
	l.asked++
	data, does := l.docs[name], l.does[name]
	kind := l.types[name]
	l.mu.Unlock()
	switch {
	case does != nil:
		does(w, r)
	case data != nil:
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Docker-Content-Digest", digest.FromBytes(data).String())
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		if r.Method != http.MethodHead {
			w.Write(data)
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// doc serves a document, under a tag too if that is not "".
func (l *lair) doc(tag, kind string, v any) ocispec.Descriptor {
	l.t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		l.t.Fatal(err)
	}
	d := ocispec.Descriptor{MediaType: kind, Digest: digest.FromBytes(data), Size: int64(len(data))}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range []string{tag, d.Digest.String()} {
		l.docs[name], l.types[name] = data, kind
	}
	return d
}

// image serves an image for this machine whose layers have sizes, and do what they do.
func (l *lair) image(tag string, does http.HandlerFunc, sizes ...int64) string {
	l.t.Helper()
	host := oci.Host()
	config := ocispec.Image{Platform: ocispec.Platform{OS: host.OS, Architecture: host.Architecture}, Author: tag}
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest}
	m.SchemaVersion = 2
	for i, size := range sizes {
		d := digest.FromString(fmt.Sprint(tag, i))
		l.mu.Lock()
		l.does[d.String()] = does
		l.mu.Unlock()
		m.Layers = append(m.Layers, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: d, Size: size})
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, d)
	}
	m.Config = l.doc("", ocispec.MediaTypeImageConfig, config)
	l.doc(tag, ocispec.MediaTypeImageManifest, m)
	return l.host + "/lair:" + tag
}

func (l *lair) requests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

// rss is the memory of the daemon, in bytes.
func (n *target) rss() int64 {
	n.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.DaemonPID()))
	var size, pages int64
	if err == nil {
		_, err = fmt.Sscan(string(data), &size, &pages)
	}
	n.check(err)
	return pages * int64(os.Getpagesize())
}

func (n *target) tryPull(ctx context.Context, ref string) error {
	_, err := n.PullImage(ctx, &runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: ref}})
	return err
}

// Indexes that name each other again and again take neither the daemon's memory nor its time.
func TestIndexBomb(t *testing.T) {
	n, l := start(t), newLair(t)
	before := n.rss()
	for _, width := range []int{2000, 200} {
		at := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString("none"), Size: 10}
		for range 4 {
			index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex}
			index.SchemaVersion = 2
			for range width {
				index.Manifests = append(index.Manifests, at)
			}
			at = l.doc(fmt.Sprint("bomb", width), ocispec.MediaTypeImageIndex, index)
		}
		if err := n.tryPull(n.within(node.Patience), fmt.Sprint(l.host, "/lair:bomb", width)); err == nil {
			t.Errorf("a bomb of %d entries was pulled", width)
		}
	}
	if after := n.rss(); after > before+64<<20 {
		t.Errorf("the daemon has %d MiB more", (after-before)>>20)
	}
	if asked := l.requests(); asked > 50 {
		t.Errorf("%d requests", asked)
	}
	n.pull(world.busybox)
}

// Blobs that come a byte at a time keep nobody from pulling.
func TestSlowBlobs(t *testing.T) {
	n, l := start(t), newLair(t)
	slow := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(1<<20))
		for r.Context().Err() == nil {
			w.Write([]byte("x"))
			http.NewResponseController(w).Flush()
			time.Sleep(500 * time.Millisecond)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for i := range 3 {
		ref := l.image(fmt.Sprint("slow", i), slow, 1<<20, 1<<20, 1<<20, 1<<20)
		all.Go(func() {
			if n.tryPull(ctx, ref) == nil {
				t.Error("a blob of a byte at a time was pulled")
			}
		})
	}
	if !node.Within(node.Patience, func() bool { return l.requests() >= 3*3+8 }) {
		t.Fatalf("only %d requests", l.requests())
	}
	n.check(n.tryPull(n.within(2*node.Patience), world.busybox))
}

// A layer that says it is huge, and has no end, is not fetched; one that says it is small is cut
// off.
func TestEndlessLayers(t *testing.T) {
	n, l := start(t), newLair(t)
	endless := func(w http.ResponseWriter, r *http.Request) {
		for err := error(nil); err == nil; {
			_, err = w.Write(make([]byte, 64<<10))
		}
	}
	n.refused(n.tryPull(n.within(node.Patience), l.image("huge", endless, 1<<62)), codes.InvalidArgument, "4611686018427387904")
	n.refused(n.tryPull(n.within(node.Patience), l.image("large", endless, 1<<43)), codes.InvalidArgument, "max_layer_mib")
	if err := n.tryPull(n.within(node.Patience), l.image("small", endless, 1<<20)); err == nil {
		t.Error("a layer without an end was pulled")
	}
	err := filepath.WalkDir(filepath.Join(n.Root, "images", "content"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			t.Errorf("%s is left", path)
		}
		return err
	})
	n.check(err)
}
