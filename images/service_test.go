package images

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images/catalog"
	"github.com/sunaba-project/sunaba/images/registry"
	"github.com/sunaba-project/sunaba/images/variant"
)

var hostPlatform = "linux/" + runtime.GOARCH

// otherPlatform is one that this machine does not run.
const otherPlatform = "linux/s390x"

func testHandlers(t *testing.T) variant.Handlers {
	return variant.Handlers{
		{Name: "runc", Platforms: parsePlatforms(t, hostPlatform), Default: true},
		{Name: "wasm", Platforms: parsePlatforms(t, "wasip1/wasm", "wasi/wasm", "wasi/wasm32", "linux/wasm", "wasip2/wasm", hostPlatform)},
	}
}

type testService struct {
	*Service
	t       *testing.T
	root    string
	options Options
	arrived []string // digests that Arrived was called with
	refuse  error    // what Arrived returns
}

func newTestService(t *testing.T) *testService {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts overlayfs: run it as root")
	}
	return openTestService(t, filepath.Join(t.TempDir(), "images"))
}

func openTestService(t *testing.T, root string) *testService {
	t.Helper()
	ts := &testService{t: t, root: root}
	ts.options = Options{
		Root:     root,
		Handlers: testHandlers(t),
		Registry: registry.Options{
			StallTimeout: time.Minute,
			Sleep:        func(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) },
		},
		Arrived: func(_ context.Context, path, digest string) error {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Errorf("Arrived: %v", err)
			}
			if !strings.HasPrefix(string(data), "\x00asm") {
				t.Errorf("Arrived(%s) holds %q", path, data)
			}
			ts.arrived = append(ts.arrived, digest)
			return ts.refuse
		},
	}
	ts.open()
	t.Cleanup(func() {
		if ts.Service != nil {
			ts.close()
		}
	})
	return ts
}

func (ts *testService) open() {
	ts.t.Helper()
	s, err := Open(ts.options)
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.Service = s
}

// close closes the service and checks what every test must leave in order.
func (ts *testService) close() {
	ts.t.Helper()
	ts.check()
	if err := ts.Close(); err != nil {
		ts.t.Errorf("Close: %v", err)
	}
	ts.Service = nil
	ts.noMounts()
}

func (ts *testService) noMounts() {
	ts.t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		ts.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, ts.root) {
			ts.t.Errorf("mount left: %s", line)
		}
	}
}

// parts counts blobs of which a part is there.
func (ts *testService) parts() int { return ts.count("content/ingest") }

// partBytes is how much of a blob is there.
func (ts *testService) partBytes(d digest.Digest) int64 {
	info, err := os.Stat(filepath.Join(ts.root, "content/ingest", d.Algorithm().String()+"-"+d.Encoded()))
	if err != nil {
		return 0
	}
	return info.Size()
}

// check checks records and unfinished layers.
func (ts *testService) check() {
	ts.t.Helper()
	ts.puller.Wait()
	for _, w := range ts.disk.DB.State().Check() {
		ts.t.Error(w)
	}
	entries, err := os.ReadDir(filepath.Join(ts.root, "mounts"))
	if err != nil && !os.IsNotExist(err) {
		ts.t.Error(err)
	}
	for _, e := range entries {
		ts.t.Errorf("left in mounts: %s", e.Name())
	}
	for id, img := range ts.disk.DB.State().Images {
		if !ts.disk.Intact(ts.t.Context(), img) && ts.t.Context().Err() == nil {
			ts.t.Errorf("image %s is not intact", id)
		}
	}
}

// blobs and layerDirs count what is on disk.
func (ts *testService) blobs() int { return ts.count("content/blobs/sha256") }

func (ts *testService) layerDirs() int { return ts.count("layers/snapshots") }

func (ts *testService) count(dir string) int {
	ts.t.Helper()
	entries, err := os.ReadDir(filepath.Join(ts.root, dir))
	if err != nil && !os.IsNotExist(err) {
		ts.t.Fatal(err)
	}
	return len(entries)
}

func (ts *testService) mustPull(ref, handler string) Image {
	ts.t.Helper()
	img, err := ts.Pull(ts.t.Context(), PullRequest{Ref: ref, Handler: handler})
	if err != nil {
		ts.t.Fatalf("Pull(%s, %q): %v", ref, handler, err)
	}
	return img
}

func (ts *testService) mustFind(ref, handler string) Image {
	ts.t.Helper()
	img, err := ts.Find(ts.t.Context(), ref, handler)
	if err != nil {
		ts.t.Fatalf("Find(%s, %q): %v", ref, handler, err)
	}
	return img
}

// tree mounts the root of a container and returns what is in it, as "path" or
// "path=content", sorted.
func (ts *testService) tree(key string, img Image) []string {
	ts.t.Helper()
	mounts, err := ts.PrepareRootFS(ts.t.Context(), key, img)
	if err != nil {
		ts.t.Fatal(err)
	}
	dir := ts.t.TempDir()
	if err := mount.All(mounts, dir); err != nil {
		ts.t.Fatal(err)
	}
	defer func() {
		if err := mount.UnmountAll(dir, 0); err != nil {
			ts.t.Error(err)
		}
	}()
	return listTree(ts.t, dir)
}

func listTree(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		name := strings.TrimPrefix(p, dir+"/")
		switch {
		case d.IsDir():
			out = append(out, name+"/")
		case d.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(p)
			out = append(out, name+"->"+target)
			return err
		default:
			data, err := os.ReadFile(p)
			out = append(out, name+"="+string(data))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// appIndex pushes an index as BuildKit writes it: two Linux images, a wasm
// image, and an attestation for each.
func appIndex(t *testing.T, r *testRegistry, repo, tag, version string) (index, host, wasm ocispec.Descriptor) {
	t.Helper()
	cfg := ocispec.ImageConfig{Entrypoint: []string{"/app"}, Env: []string{"V=" + version}, User: "65532"}
	host = r.image(repo, "", hostPlatform, cfg, gzipLayer(t, file{name: "app", content: "host " + version}))
	other := r.image(repo, "", otherPlatform, cfg, gzipLayer(t, file{name: "app", content: "other " + version}))
	cfg.Entrypoint = []string{"/app.wasm"}
	wasm = r.image(repo, "", "wasip1/wasm", cfg, gzipLayer(t, file{name: "app.wasm", content: string(moduleBytes(version))}))
	index = r.index(repo, tag, host, other, wasm,
		r.attestation(repo, host), r.attestation(repo, other), r.attestation(repo, wasm))
	return index, host, wasm
}

func TestPullOfAnIndexFetchesEveryHandlersVariant(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	index, host, wasm := appIndex(t, r, "app", "v1", "1")
	ref := r.host + "/app:v1"

	img := s.mustPull(ref, "")
	if img.Manifest.Digest != host.Digest || img.Kind != catalog.RootFS {
		t.Errorf("answered %+v, want the host's variant", img)
	}
	equal(t, "tags", img.RepoTags, []string{ref})
	equal(t, "digests", img.RepoDigests, []string{r.host + "/app@" + index.Digest.String()})
	equal(t, "handlers", img.Handlers, []string{"runc"})
	if img.Size <= 0 || img.Config.User != "65532" || img.Platform.Architecture != runtime.GOARCH {
		t.Errorf("image is %+v", img)
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("List: %d images, %v; want 2", len(list), err)
	}
	w := s.mustFind(ref, "wasm")
	if w.Manifest.Digest != wasm.Digest || w.ID == img.ID {
		t.Errorf("wasm variant is %+v", w)
	}
	equal(t, "wasm handlers", w.Handlers, []string{"wasm"})
	if len(s.arrived) != 1 {
		t.Errorf("Arrived was called with %q, want one module", s.arrived)
	}
	equal(t, "host tree", s.tree("c1", img), []string{"app=host 1"})
	equal(t, "wasm tree", s.tree("c2", w), []string{"app.wasm=" + string(moduleBytes("1"))})

	for _, name := range []string{img.ID, strings.TrimPrefix(img.ID, "sha256:"), img.ID[7:20], ref, img.RepoDigests[0]} {
		if got := s.mustFind(name, ""); got.ID != img.ID {
			t.Errorf("Find(%s) = %s, want %s", name, got.ID, img.ID)
		}
	}
	if got := s.mustFind(w.ID, ""); got.ID != w.ID {
		t.Errorf("Find(id of the wasm variant) = %s", got.ID)
	}
}

func TestPullAgainAsksOnlyForTheManifest(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	appIndex(t, r, "app", "v1", "1")
	ref := r.host + "/app:v1"
	s.mustPull(ref, "")
	r.asked()
	for _, handler := range []string{"", "runc", "wasm"} {
		s.mustPull(ref, handler)
		equal(t, "requests for handler "+handler, r.asked(), []string{"HEAD /v2/app/manifests/v1"})
	}
	s.close()
	s.open()
	s.mustPull(ref, "")
	equal(t, "requests after reopening", r.asked(), []string{"HEAD /v2/app/manifests/v1"})
}

func TestPullForOneHandlerKeepsTheOthers(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	_, host, wasm := appIndex(t, r, "app", "v1", "1")
	ref := r.host + "/app:v1"

	w := s.mustPull(ref, "wasm")
	if w.Manifest.Digest != wasm.Digest {
		t.Errorf("answered %s, want the wasm variant", w.Manifest.Digest)
	}
	if got := s.mustFind(ref, ""); got.ID != w.ID {
		t.Errorf("Find with no handler = %s, want any variant", got.ID)
	}
	if _, err := s.Find(t.Context(), ref, "runc"); err == nil {
		t.Error("the host's variant is there before it was pulled")
	}
	h := s.mustPull(ref, "runc")
	if h.Manifest.Digest != host.Digest {
		t.Errorf("answered %s, want the host's variant", h.Manifest.Digest)
	}
	if got := s.mustFind(ref, "wasm"); got.ID != w.ID {
		t.Errorf("the wasm variant has become %s", got.ID)
	}
	equal(t, "tags of the wasm variant", s.mustFind(w.ID, "").RepoTags, []string{ref})
}

func TestTagMoves(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	first, _, _ := appIndex(t, r, "app", "latest", "1")
	ref := r.host + "/app:latest"
	h1 := s.mustPull(ref, "")
	w1 := s.mustFind(ref, "wasm")
	second, _, _ := appIndex(t, r, "app", "latest", "2")

	h2 := s.mustPull(ref, "runc")
	if h2.ID == h1.ID {
		t.Fatal("the pull after the tag moved answered the old image")
	}
	if got := s.mustFind(ref, ""); got.ID != h2.ID {
		t.Errorf("the tag leads to %s, want %s", got.ID, h2.ID)
	}
	if got := s.mustFind(ref, "wasm"); got.ID != w1.ID {
		t.Errorf("the tag leads wasm to %s, want the one not pulled again, %s", got.ID, w1.ID)
	}
	old := s.mustFind(h1.ID, "")
	equal(t, "old image's tags", old.RepoTags, nil)
	equal(t, "old image's digests", old.RepoDigests, []string{r.host + "/app@" + first.Digest.String()})

	s.mustPull(ref, "")
	w2 := s.mustFind(ref, "wasm")
	if w2.ID == w1.ID {
		t.Error("the wasm variant did not move")
	}
	equal(t, "old wasm image's tags", s.mustFind(w1.ID, "").RepoTags, nil)
	equal(t, "new image's digests", s.mustFind(h2.ID, "").RepoDigests, []string{r.host + "/app@" + second.Digest.String()})
	if list, _ := s.List(t.Context()); len(list) != 4 {
		t.Errorf("%d images, want 4", len(list))
	}

	if err := s.Remove(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if list, _ := s.List(t.Context()); len(list) != 2 {
		t.Errorf("%d images after Remove of the tag, want the 2 old ones", len(list))
	}
}

func TestPullByDigest(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	index, _, _ := appIndex(t, r, "app", "v1", "1")
	img := s.mustPull(r.host+"/app:v1@"+index.Digest.String(), "")
	equal(t, "tags", img.RepoTags, nil)
	equal(t, "digests", img.RepoDigests, []string{r.host + "/app@" + index.Digest.String()})
}

func TestSameImageFromTwoRepositories(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	l := gzipLayer(t, file{name: "app", content: "x"})
	r.image("one", "a", hostPlatform, ocispec.ImageConfig{}, l)
	r.image("one", "b", hostPlatform, ocispec.ImageConfig{}, l)
	r.image("two", "a", hostPlatform, ocispec.ImageConfig{}, l)
	a := s.mustPull(r.host+"/one:a", "")
	r.asked()
	b := s.mustPull(r.host+"/one:b", "")
	c := s.mustPull(r.host+"/two:a", "")
	if a.ID != b.ID || a.ID != c.ID {
		t.Fatalf("ids %s, %s, %s differ", a.ID, b.ID, c.ID)
	}
	if n := countBlobs(r.asked()); n != 0 {
		t.Errorf("%d blobs fetched again", n)
	}
	list, _ := s.List(t.Context())
	if len(list) != 1 {
		t.Fatalf("%d entries, want one", len(list))
	}
	equal(t, "tags", list[0].RepoTags, []string{r.host + "/one:a", r.host + "/one:b", r.host + "/two:a"})
	if len(list[0].RepoDigests) != 2 {
		t.Errorf("digests %q, want one for each repository", list[0].RepoDigests)
	}
	if err := s.Remove(t.Context(), r.host+"/one:b"); err != nil {
		t.Fatal(err)
	}
	if list, _ := s.List(t.Context()); len(list) != 0 {
		t.Errorf("one tag did not remove all: %q", list[0].RepoTags)
	}
}

// blocks is what a file takes on disk.
func blocks(info os.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Blocks * 512 }
