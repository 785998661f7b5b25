package images

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images/manifest"
)

func TestForContainer(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	index, _, _ := appIndex(t, r, "app", "v1", "1")
	r.index("copy", "v1", mirror(t, r, "copy")...)
	r.artifact("mod", "v1", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, moduleBytes("m"))
	r.image("linux", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "x", content: "x"}))
	app, mod, linux := r.host+"/app:v1", r.host+"/mod:v1", r.host+"/linux:v1"
	host := s.mustPull(app, "")
	wasm := s.mustFind(app, "wasm")
	s.mustPull(r.host+"/copy:v1", "")
	module := s.mustPull(mod, "")
	plain := s.mustPull(linux, "")
	tests := []struct {
		name, image, userSpecified, handler string
		want                                string // id, or a part of the error's text
	}{
		{"by tag, default", app, "", "", host.ID},
		{"by tag", app, "", "wasm", wasm.ID},
		{"by digest", r.host + "/app@" + index.Digest.String(), app, "wasm", wasm.ID},
		{"its own id", host.ID, app, "runc", host.ID},
		{"the sibling's id", host.ID, app, "wasm", wasm.ID},
		{"the other way round", wasm.ID, app, "runc", host.ID},
		{"id without the reference", host.ID, "", "wasm", wasm.ID},
		{"id with a strange reference", host.ID, "not/it", "wasm", wasm.ID},
		{"id with another repository", host.ID, r.host + "/copy:v1", "wasm", host.ID},
		{"a wasm handler runs Linux images too", plain.ID, linux, "wasm", plain.ID},
		{"module", module.ID, mod, "wasm", module.ID},
		{"module with runc", module.ID, mod, "runc", `the image is for wasip1/wasm, not for ` + hostPlatform + `; handler "wasm" takes it`},
		{"unknown handler", host.ID, app, "kata", `runtime handler "kata" is not configured; there are ["runc" "wasm"]`},
		{"absent", "absent", "", "", "not found"},
		{"no reference at all", "a:-x", "", "", "not found"},
	}
	r.asked()
	for _, tt := range tests {
		img, err := s.ForContainer(t.Context(), tt.image, tt.userSpecified, tt.handler)
		if strings.HasPrefix(tt.want, "sha256:") {
			if err != nil || img.ID != tt.want {
				t.Errorf("%s: got %s, %v; want %s", tt.name, img.ID, err, tt.want)
			}
		} else if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v; want %q", tt.name, err, tt.want)
		}
	}
	if got := r.asked(); len(got) != 0 {
		t.Errorf("the registry was asked: %q", got)
	}
	if _, err := s.ForContainer(t.Context(), module.ID, mod, "runc"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("module with runc: %v, want ErrFailedPrecondition", err)
	}
	if _, err := s.ForContainer(t.Context(), host.ID, app, "kata"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("unknown handler: %v, want ErrInvalidArgument", err)
	}
}

// mirror pushes the host image of appIndex to another repository.
func mirror(t *testing.T, r *testRegistry, to string) []ocispec.Descriptor {
	t.Helper()
	cfg := ocispec.ImageConfig{Entrypoint: []string{"/app"}, Env: []string{"V=1"}, User: "65532"}
	host := r.image(to, "", hostPlatform, cfg, gzipLayer(t, file{name: "app", content: "host 1"}))
	return []ocispec.Descriptor{host}
}

func TestForContainerFetchesTheMissingVariant(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	_, _, wasm := appIndex(t, r, "app", "v1", "1")
	ref := r.host + "/app:v1"
	host := s.mustPull(ref, "runc")
	if len(s.arrived) != 0 {
		t.Errorf("arrived %q before the variant was wanted", s.arrived)
	}
	img, err := s.ForContainer(t.Context(), host.ID, ref, "wasm")
	if err != nil {
		t.Fatal(err)
	}
	if img.Manifest.Digest != wasm.Digest || len(s.arrived) != 1 {
		t.Errorf("got %s, arrived %q", img.Manifest.Digest, s.arrived)
	}
	equal(t, "tags", img.RepoTags, []string{ref})
	r.server.Close()
	if again, err := s.ForContainer(t.Context(), host.ID, ref, "wasm"); err != nil || again.ID != img.ID {
		t.Errorf("without the registry: %s, %v", again.ID, err)
	}
}

func TestForContainerOfAnUnreachableVariant(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	appIndex(t, r, "app", "v1", "1")
	host := s.mustPull(r.host+"/app:v1", "runc")
	r.server.Close()
	_, err := s.ForContainer(t.Context(), host.ID, "", "wasm")
	if err == nil || !strings.HasPrefix(err.Error(), "RegistryUnavailable: ") {
		t.Errorf("got %v", err)
	}
}

func TestRootFS(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	base := gzipLayer(t, file{name: "etc/"}, file{name: "etc/passwd", content: "root:x:0:0::/:/bin/sh\n"})
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, base, gzipLayer(t, file{name: "app", content: "x"}))
	img := s.mustPull(r.host+"/app:v1", "")
	ctx := t.Context()

	mounts, err := s.PrepareRootFS(ctx, "c1", img)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := mount.All(mounts, dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "new"), make([]byte, 10000), 0o644); err != nil {
		t.Fatal(err)
	}
	// Read while it is mounted, with what has been written.
	err = s.WithRootFS(ctx, "c1", func(root string) error {
		for _, name := range []string{"etc/passwd", "app", "new"} {
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Error(err)
			}
		}
		if err := os.WriteFile(filepath.Join(root, "y"), nil, 0o644); err == nil {
			t.Error("WithRootFS gave a writable directory")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.PrepareRootFS(ctx, "c1", img)
	if err != nil || again[0].Options[0] != mounts[0].Options[0] {
		t.Errorf("PrepareRootFS again: %v, %v", again, err)
	}
	if use, err := s.RootFSUsage(ctx, "c1", new(space.Known)); err != nil || use.Bytes < 10000 || use.Inodes < 1 {
		t.Errorf("RootFSUsage: %+v, %v", use, err)
	}
	images, containers, err := s.FsUsage(ctx)
	if err != nil || images.Bytes <= 0 || images.Inodes <= 0 || containers.Bytes < 10000 || images.Path != s.root {
		t.Errorf("FsUsage: %+v, %+v, %v", images, containers, err)
	}

	// The image goes, the container does not, also across a restart.
	if err := s.Remove(ctx, img.ID); err != nil {
		t.Fatal(err)
	}
	if err := mount.UnmountAll(dir, 0); err != nil {
		t.Fatal(err)
	}
	s.close()
	s.open()
	beside, err := Glance(s.root)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "keys read beside the open store", beside.Keys(), []string{"c1"})
	keys := s.RootFSKeys()
	equal(t, "keys", keys, []string{"c1"})
	mounts, err = s.PrepareRootFS(ctx, "c1", img)
	if err != nil {
		t.Fatal(err)
	}
	if err := mount.All(mounts, dir); err != nil {
		t.Fatal(err)
	}
	if got := listTree(t, dir); len(got) != 4 {
		t.Errorf("tree is %q", got)
	}
	if err := mount.UnmountAll(dir, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PrepareRootFS(ctx, "c2", img); !errdefs.IsNotFound(err) {
		t.Errorf("PrepareRootFS of a removed image: %v", err)
	}
	for range 2 {
		if err := s.RemoveRootFS(ctx, "c1"); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.layerDirs(); n != 0 {
		t.Errorf("%d layers left", n)
	}
	if err := s.WithRootFS(ctx, "c1", nil); !errdefs.IsNotFound(err) {
		t.Errorf("WithRootFS without a root: %v", err)
	}
	if _, err := s.RootFSUsage(ctx, "c1", new(space.Known)); !errdefs.IsNotFound(err) {
		t.Errorf("RootFSUsage without a root: %v", err)
	}
}

func TestRootFSOfAModuleKeepsIt(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	r.artifact("mod", "v1", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, moduleBytes("m"))
	img := s.mustPull(r.host+"/mod:v1", "")
	ctx := t.Context()
	mounts, err := s.PrepareRootFS(ctx, "c1", img)
	if err != nil || len(mounts) != 0 {
		t.Fatalf("PrepareRootFS: %v, %v", mounts, err)
	}
	err = s.WithRootFS(ctx, "c1", func(root string) error {
		equal(t, "tree", listTree(t, root), nil)
		return errors.New("fn's error")
	})
	if err == nil || err.Error() != "fn's error" {
		t.Errorf("WithRootFS: %v", err)
	}
	path := s.ModulePath(img)
	if err := s.Remove(ctx, img.ID); err != nil {
		t.Fatal(err)
	}
	s.close()
	s.open()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the module of a container has gone: %v", err)
	}
	if err := s.RemoveRootFS(ctx, "c1"); err != nil {
		t.Fatal(err)
	}
	if n := s.blobs(); n != 0 {
		t.Errorf("%d blobs left", n)
	}
}

func TestEmptyStore(t *testing.T) {
	s := newTestService(t)
	images, containers, err := s.FsUsage(t.Context())
	if err != nil || images != (Usage{Path: s.root}) || containers != (Usage{Path: s.root}) {
		t.Errorf("FsUsage: %+v, %+v, %v", images, containers, err)
	}
	if keys := s.RootFSKeys(); len(keys) != 0 {
		t.Errorf("RootFSKeys: %q", keys)
	}
	list, err := s.List(t.Context())
	if err != nil || list == nil || len(list) != 0 {
		t.Errorf("List: %v, %v", list, err)
	}
	for _, name := range []string{"absent", "sha256:0000", "0000", "a:-x", ""} {
		if _, err := s.Find(t.Context(), name, ""); !errdefs.IsNotFound(err) {
			t.Errorf("Find(%q): %v", name, err)
		}
	}
	if _, err := s.Find(t.Context(), "absent", "kata"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Find for an unknown handler: %v", err)
	}
	if err := s.RemoveRootFS(t.Context(), "absent"); err != nil {
		t.Error(err)
	}
	if _, err := s.PrepareRootFS(t.Context(), "", Image{}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("PrepareRootFS without a key: %v", err)
	}
}

func TestRemove(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	appIndex(t, r, "app", "v1", "1")
	shared := gzipLayer(t, file{name: "base", content: "b"})
	r.image("a", "v1", hostPlatform, ocispec.ImageConfig{}, shared, gzipLayer(t, file{name: "a", content: "a"}))
	r.image("b", "v1", hostPlatform, ocispec.ImageConfig{}, shared, gzipLayer(t, file{name: "b", content: "b"}))
	ctx := t.Context()
	ref := r.host + "/app:v1"
	host := s.mustPull(ref, "")
	wasm := s.mustFind(ref, "wasm")
	if err := s.Remove(ctx, host.ID); err != nil {
		t.Fatal(err)
	}
	if got := s.mustFind(ref, ""); got.ID != wasm.ID {
		t.Errorf("after the host's variant was removed the tag leads to %s", got.ID)
	}
	s.mustPull(ref, "")
	errs := make(chan error, 5)
	for range 5 {
		go func() { errs <- s.Remove(ctx, ref) }()
	}
	for range 5 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if list, _ := s.List(ctx); len(list) != 0 {
		t.Errorf("%d images left", len(list))
	}
	if b, l := s.blobs(), s.layerDirs(); b != 0 || l != 0 {
		t.Errorf("%d blobs and %d layers left", b, l)
	}

	r.asked()
	a := s.mustPull(r.host+"/a:v1", "")
	s.mustPull(r.host+"/b:v1", "")
	if n := countBlobs(r.asked()); n != 5 { // two configurations, three layers
		t.Errorf("%d blobs fetched, want 5", n)
	}
	if n := s.layerDirs(); n != 3 {
		t.Errorf("%d layers, want 3", n)
	}
	if err := s.Remove(ctx, a.ID[7:20]); err != nil {
		t.Fatal(err)
	}
	if n := s.layerDirs(); n != 2 {
		t.Errorf("%d layers after the first image went, want 2", n)
	}
	equal(t, "tree of the other", s.tree("c", s.mustFind(r.host+"/b:v1", "")), []string{"b=b", "base=b"})
	for _, nothing := range []string{"absent:v1", "sha256:" + strings.Repeat("0", 64), "a:-x", ""} {
		if err := s.Remove(ctx, nothing); err != nil {
			t.Errorf("Remove(%q): %v", nothing, err)
		}
	}
}

// A view can be read and not written, and keeps the image's files until it is removed.
func TestView(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	r.image("one", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}))
	r.image("two", "v1", hostPlatform, ocispec.ImageConfig{}, gzipLayer(t, file{name: "a", content: "1"}), gzipLayer(t, file{name: "b", content: "2"}))
	r.artifact("mod", "v1", manifest.MediaTypeWasmConfig, wasmConfig, manifest.MediaTypeWasm, moduleBytes("m"))
	ctx := t.Context()
	for name, files := range map[string]int{"one": 1, "two": 2} {
		img := s.mustPull(r.host+"/"+name+":v1", "")
		for _, ids := range [][2]string{{"", ""}, {"0:70000:65536", "0:80000:65536"}} {
			mounts, err := s.PrepareView(ctx, "v-"+name, img, ids[0], ids[1])
			if err != nil {
				t.Fatal(err)
			}
			if mapped := strings.Contains(strings.Join(mounts[0].Options, " "), "uidmap="+ids[0]); mapped != (ids[0] != "") {
				t.Errorf("%s: options %q", name, mounts[0].Options)
			}
			if again, err := s.PrepareView(ctx, "v-"+name, img, ids[0], ids[1]); err != nil || again[0].Source != mounts[0].Source {
				t.Errorf("%s again: %v, %v", name, again, err)
			}
			if ids[0] == "" {
				dir := t.TempDir()
				if err := mount.All(mounts, dir); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "c"), nil, 0o644); err == nil {
					t.Errorf("%s: the view took a file", name)
				}
				if err := mount.UnmountAll(dir, 0); err != nil {
					t.Fatal(err)
				}
				if err := s.Remove(ctx, img.ID); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.WithRootFS(ctx, "v-"+name, func(root string) error {
				if got := listTree(t, root); len(got) != files {
					t.Errorf("%s: %q", name, got)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			if err := s.RemoveRootFS(ctx, "v-"+name); err != nil {
				t.Fatal(err)
			}
			img = s.mustPull(r.host+"/"+name+":v1", "")
		}
		if err := s.Remove(ctx, img.ID); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.layerDirs(); n != 0 {
		t.Errorf("%d layers left", n)
	}
	if _, err := s.PrepareView(ctx, "v", s.mustPull(r.host+"/mod:v1", ""), "", ""); !errdefs.IsInvalidArgument(err) {
		t.Errorf("view of a module: %v", err)
	}
}
