package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/progress"
	"github.com/sunaba-project/sunaba/images/registry"
)

func TestPullKindsOfManifestsAndLayers(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	a, b, c := file{name: "a", content: "1"}, file{name: "b", content: "2"}, file{name: "c", content: "3"}
	docker := gzipLayer(t, c)
	docker.mediaType = dockerLayer
	r.image("oci", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, a), zstdLayer(t, b), plainLayer(t, c))
	r.imageOf("docker", "v1", hostPlatform, ocispec.ImageConfig{}, dockerManifest, dockerConfig, docker)
	listed := r.imageOf("list", "", hostPlatform, ocispec.ImageConfig{}, dockerManifest, dockerConfig, docker)
	r.document("list", "v1", dockerList, ocispec.Index{MediaType: dockerList, Manifests: []ocispec.Descriptor{listed}})
	r.image("empty", "v1", hostPlatform, ocispec.ImageConfig{})
	for repo, want := range map[string][]string{
		"oci": {"a=1", "b=2", "c=3"}, "docker": {"c=3"}, "list": {"c=3"}, "empty": nil,
	} {
		img := s.mustPull(r.host+"/"+repo+":v1", "")
		if img.Size <= 0 {
			t.Errorf("%s: size %d", repo, img.Size)
		}
		if got := s.tree(repo, img); len(got) != len(want) {
			t.Errorf("%s: got %q, want %q", repo, got, want)
		}
	}
	if n, want := s.blobs(), 3+3+1; n != want { // manifests, configurations and the list, but no layers
		t.Errorf("%d blobs, want %d", n, want)
	}
	if n := s.layerDirs(); n != 3+1+4 { // layers, and a root for each container
		t.Errorf("%d layer directories", n)
	}
}

func TestPullErrors(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	host := r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	r.image("other", "v1", otherPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	r.index("prov", "v1", r.attestation("prov", host))
	wrong := gzipLayer(t, file{name: "a", content: "1"})
	wrong.diff = host.Digest
	r.image("diff", "v1", hostPlatform, ocispec.ImageConfig{}, wrong)
	odd := gzipLayer(t, file{name: "a", content: "1"})
	odd.mediaType = "application/vnd.odd"
	r.image("odd", "v1", hostPlatform, ocispec.ImageConfig{}, odd)
	absent := strings.Repeat("0", 64)
	tests := []struct {
		ref, handler string
		class        func(error) bool
		text         string
	}{
		{"app:absent", "", errdefs.IsNotFound, "app:absent"},
		{"nothing/here:v1", "", errdefs.IsNotFound, ""},
		{"app@sha256:" + absent, "", errdefs.IsNotFound, ""},
		{"app:v1", "kata", errdefs.IsInvalidArgument, `runtime handler "kata" is not configured; there are ["runc" "wasm"]`},
		{"other:v1", "", errdefs.IsFailedPrecondition, "the image is for linux/s390x, not for linux/"},
		{"other:v1", "wasm", errdefs.IsFailedPrecondition, "the image is for linux/s390x, not for wasip1/wasm"},
		{"prov:v1", "", errdefs.IsFailedPrecondition, "holds nothing that can run"},
		{"diff:v1", "", errdefs.IsDataLoss, "not what the image's configuration says"},
		{"odd:v1", "", errdefs.IsInvalidArgument, `type "application/vnd.odd"`},
	}
	for _, tt := range tests {
		_, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/" + tt.ref, Handler: tt.handler})
		if !tt.class(err) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s for %q: %v", tt.ref, tt.handler, err)
		}
	}
	r.asked()
	for _, bad := range []string{r.host + "/app:-x", r.host + "/App", "", r.host + "/app@sha256:12"} {
		if _, err := s.Pull(t.Context(), PullRequest{Ref: bad}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if got := r.asked(); len(got) != 0 {
		t.Errorf("bad references reached the network: %q", got)
	}
	if list, _ := s.List(t.Context()); len(list) != 0 {
		t.Errorf("%d images", len(list))
	}
	// A later pull of an image with another's leftovers.
	s.mustPull(r.host+"/app:v1", "")
}

func TestPullFromARegistryInTrouble(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	ref := r.host + "/app:v1"
	unavailable := func(what string) {
		t.Helper()
		_, err := s.Pull(t.Context(), PullRequest{Ref: ref, Auth: registry.Credentials{Username: "u", Password: "s3cr3t"}})
		if err == nil || !strings.HasPrefix(err.Error(), "RegistryUnavailable: pull ") || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", what, err)
		}
		if errdefs.IsUnavailable(err) || errdefs.IsUnknown(err) {
			t.Errorf("%s: %v has a class", what, err)
		}
	}
	r.setFront(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(503); return true })
	unavailable("503 for the manifest")
	r.setFront(func(w http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(req.URL.Path, "/blobs/") {
			w.WriteHeader(500)
			return true
		}
		return false
	})
	unavailable("500 for blobs")
	r.setFront(nil)
	s.check()
	r.server.Close()
	unavailable("no registry")
}

// A blob that is not what its digest says is discarded and named, and the next
// pull is not the worse for it.
func TestPullOfBrokenBlobs(t *testing.T) {
	l := gzipLayer(t, file{name: "a", content: strings.Repeat("0123456789", 1000)})
	tests := []struct {
		name, text string
		serve      func(w http.ResponseWriter)
	}{
		{"corrupt", "is corrupt", func(w http.ResponseWriter) {
			broken := append([]byte{}, l.compressed...)
			broken[len(broken)/2] ^= 1
			w.Write(broken)
		}},
		{"too short", "is truncated", func(w http.ResponseWriter) { w.Write(l.compressed[:20]) }},
		{"too long", "is corrupt", func(w http.ResponseWriter) { w.Write(append(append([]byte{}, l.compressed...), 'x')) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, s := newTestRegistry(t), newTestService(t)
			r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, l)
			blob := r.blob("app", l.mediaType, l.compressed)
			r.setFront(func(w http.ResponseWriter, req *http.Request) bool {
				if strings.HasSuffix(req.URL.Path, "/blobs/"+blob.Digest.String()) {
					tt.serve(w)
					return true
				}
				return false
			})
			_, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/app:v1"})
			if err == nil || !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), blob.Digest.String()) {
				t.Errorf("Pull: %v; want %q", err, tt.text)
			}
			s.check()
			r.setFront(nil)
			s.mustPull(r.host+"/app:v1", "")
		})
	}
}

func TestPullOfATamperedManifest(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	d := r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	r.setFront(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method != http.MethodGet || !strings.Contains(req.URL.Path, "/manifests/") {
			return false
		}
		w.Header().Set("Content-Type", d.MediaType)
		io.WriteString(w, strings.Repeat("{}", int(d.Size)/2)+strings.Repeat(" ", int(d.Size)%2))
		return true
	})
	_, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/app@" + d.Digest.String()})
	if !errdefs.IsDataLoss(err) {
		t.Errorf("Pull: %v", err)
	}
}

// A transfer that breaks off goes on where it was.
func TestPullResumes(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	l := plainLayer(t, file{name: "a", content: strings.Repeat("0123456789", 10000)})
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, l)
	var tries atomic.Int32
	var sent atomic.Int64
	r.setFront(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.Contains(req.URL.Path, "/blobs/") || tries.Add(1) == 1 { // the configuration comes first
			return false
		}
		from := 0
		fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-", &from)
		w.Header().Set("Content-Length", fmt.Sprint(len(l.compressed)-from))
		if from > 0 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(l.compressed)-1, len(l.compressed)))
			w.WriteHeader(http.StatusPartialContent)
		}
		n, _ := w.Write(l.compressed[from:min(from+40000, len(l.compressed))])
		sent.Add(int64(n))
		return true // short of the length announced: the connection is cut
	})
	img := s.mustPull(r.host+"/app:v1", "")
	if got := s.tree("c", img); len(got) != 1 || len(got[0]) != 2+100000 {
		t.Errorf("tree has %d entries", len(got))
	}
	if n := sent.Load(); n > int64(len(l.compressed))+1000 {
		t.Errorf("%d bytes were sent for a blob of %d", n, len(l.compressed))
	}
}

func TestEqualPullsAreOne(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	appIndex(t, r, "app", "v1", "1")
	go1 := make(chan struct{})
	r.setFront(func(_ http.ResponseWriter, req *http.Request) bool {
		if strings.HasSuffix(req.URL.Path, "/manifests/v1") {
			<-go1
		}
		return false
	})
	var wg sync.WaitGroup
	ids := make([]string, 10)
	for i := range ids {
		wg.Go(func() {
			img, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/app:v1"})
			if err != nil {
				t.Error(err)
			}
			ids[i] = img.ID
		})
	}
	// All have asked, and wait for the one that does it.
	for deadline := time.Now().Add(time.Minute); waiting("singleflight.(*Group[", ").Do(") < len(ids); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the pulls do not wait for each other")
		}
	}
	close(go1)
	wg.Wait()
	heads := 0
	for _, q := range r.asked() {
		if strings.HasPrefix(q, "HEAD ") {
			heads++
		}
	}
	if heads != 1 {
		t.Errorf("%d pulls resolved the reference", heads)
	}
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("ids differ: %q", ids)
		}
	}
}

// waiting counts the goroutines that are in a select or receive of a function.
func waiting(of, name string) (n int) {
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		head, frames, _ := strings.Cut(stack, "\n")
		top, _, _ := strings.Cut(frames, "\n")
		if (strings.Contains(head, "[select") || strings.Contains(head, "[chan receive")) && strings.Contains(top, of) && strings.Contains(top, name) {
			n++
		}
	}
	return n
}

// Different references with shared layers, pulled and removed at once.
func TestPullsAndRemovesAtOnce(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	base := gzipLayer(t, file{name: "base", content: strings.Repeat("b", 200000)})
	const repos = 6
	for i := range repos {
		r.image(fmt.Sprint("app", i), "v1", hostPlatform, ocispec.ImageConfig{}, base, gzipLayer(t, file{name: "own", content: fmt.Sprint(i)}))
	}
	var wg sync.WaitGroup
	for i := range repos {
		wg.Go(func() {
			ref := fmt.Sprintf("%s/app%d:v1", r.host, i)
			for n := range 4 {
				img, err := s.Pull(t.Context(), PullRequest{Ref: ref})
				if err != nil {
					t.Error(err)
					return
				}
				key := fmt.Sprintf("c%d-%d", i, n)
				if _, err := s.PrepareRootFS(t.Context(), key, img); err != nil {
					t.Error(err)
				}
				if err := s.Remove(t.Context(), ref); err != nil {
					t.Error(err)
				}
				err = s.WithRootFS(t.Context(), key, func(root string) error {
					got, err := os.ReadFile(filepath.Join(root, "own"))
					if string(got) != fmt.Sprint(i) {
						t.Errorf("%s: read %q, %v", key, got, err)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				if err := s.RemoveRootFS(t.Context(), key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if b, l := s.blobs(), s.layerDirs(); b != 0 || l != 0 {
		if err := s.collector.Sweep(t.Context(), 0); err != nil {
			t.Error(err)
		}
		t.Errorf("%d blobs and %d layers left; after another sweep %d and %d", b, l, s.blobs(), s.layerDirs())
	}
}

func TestCancelStopsAPull(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	l := plainLayer(t, file{name: "a", content: strings.Repeat("x", 1<<20)})
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "b", content: "1"}), l)
	blocked := make(chan struct{}, 1)
	r.setFront(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, l.diff.String()) {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(l.compressed)))
		w.Write(l.compressed[:1000])
		w.(http.Flusher).Flush()
		blocked <- struct{}{}
		<-req.Context().Done() // the client has gone
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-blocked
		for s.partBytes(l.diff) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	begin := time.Now()
	_, err := s.Pull(ctx, PullRequest{Ref: r.host + "/app:v1"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Pull: %v", err)
	}
	if d := time.Since(begin); d > 30*time.Second {
		t.Errorf("it took %s", d)
	}
	s.check()
	if s.partBytes(l.diff) == 0 {
		t.Error("what came of the layer is not kept")
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Pull(ctx, PullRequest{Ref: r.host + "/app:v1"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Pull with a deadline: %v", err)
	}
	r.setFront(nil)
	s.mustPull(r.host+"/app:v1", "")
	if n := s.parts(); n != 0 {
		t.Errorf("%d parts of blobs are left", n)
	}
}

func TestProgress(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{},
		gzipLayer(t, file{name: "a", content: "1"}), gzipLayer(t, file{name: "b", content: "1"}))
	var seen []Progress
	if _, err := s.Pull(t.Context(), PullRequest{Ref: r.host + "/app:v1", Progress: func(p Progress) { seen = append(seen, p) }}); err != nil {
		t.Fatal(err)
	}
	var phases []string
	for _, p := range seen {
		if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
			phases = append(phases, p.Phase)
		}
	}
	equal(t, "phases", phases, []string{"resolve", "fetch", "unpack", "done"})
	last := seen[len(seen)-1]
	if last.Layers != 2 || last.LayersDone != 2 || last.Bytes != last.BytesTotal || last.Bytes == 0 {
		t.Errorf("at the end %+v", last)
	}
	if n := s.puller.Meters.Len(); n != 0 {
		t.Errorf("%d meters left", n)
	}
}

// Another client removes the image as soon as it is on record: who pulls it is told what was
// pulled.
func TestPullOfWhatAnotherRemoves(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	ref, removed := r.host+"/app:v1", 0
	want := s.mustPull(ref, "").ID
	for range 2 { // one that is complete, one that is fetched
		img, err := s.Pull(t.Context(), PullRequest{Ref: ref, Progress: func(p progress.Progress) {
			if p.Phase != "done" {
				return
			}
			if err := s.Remove(t.Context(), ref); err != nil {
				t.Error(err)
			}
			removed++
		}})
		if err != nil || img.ID != want {
			t.Errorf("got %q, %v, want %q", img.ID, err, want)
		}
		if _, err := s.Find(t.Context(), ref, ""); !errdefs.IsNotFound(err) {
			t.Errorf("afterwards: %v", err)
		}
	}
	if removed != 2 {
		t.Errorf("removed %d times", removed)
	}
}
