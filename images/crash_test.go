package images

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestDamagedStoreHeals(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	appIndex(t, r, "app", "v1", "1")
	ref := r.host + "/app:v1"
	img := s.mustPull(ref, "")
	wasm := s.mustFind(ref, "wasm")
	damage := map[string]func() error{
		"manifest": func() error { return os.Truncate(s.content.Path(img.Manifest.Digest), 3) },
		"layer": func() error {
			dirs, err := filepath.Glob(filepath.Join(s.root, "layers/snapshots/*/fs/app"))
			if err != nil || len(dirs) != 1 {
				return fmt.Errorf("layers %q, %w", dirs, err)
			}
			return os.RemoveAll(filepath.Dir(dirs[0]))
		},
	}
	for name, do := range damage {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s.open()
		if _, err := s.Find(t.Context(), img.ID, ""); !errdefs.IsNotFound(err) {
			t.Errorf("%s: the damaged image is still there: %v", name, err)
		}
		if got := s.mustFind(ref, ""); got.ID != wasm.ID {
			t.Errorf("%s: found %s", name, got.ID)
		}
		if got := s.mustPull(ref, ""); got.ID != img.ID {
			t.Errorf("%s: pulled %s", name, got.ID)
		}
		s.check()
	}
	equal(t, "tree", s.tree("c", img), []string{"app=host 1"})
}

const (
	envChildRoot = "SUNABA_TEST_IMAGES_ROOT"
	envChildRef  = "SUNABA_TEST_IMAGES_REF"
)

// TestChildPull is no test: it is the process that TestKill kills.
func TestChildPull(t *testing.T) {
	root := os.Getenv(envChildRoot)
	if root == "" {
		return
	}
	s, err := Open(Options{Root: root, Handlers: testHandlers(t)})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		img, err := s.Pull(t.Context(), PullRequest{Ref: os.Getenv(envChildRef)})
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprint("c", n)
		if _, err := s.PrepareRootFS(t.Context(), key, img); err != nil {
			t.Fatal(err)
		}
		if err := s.RemoveRootFS(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if err := s.Remove(t.Context(), img.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// A process that pulls and removes is killed at whatever it is doing; the next
// one finds the store in order and can use it.
func TestKill(t *testing.T) {
	r, s := newTestRegistry(t), newTestService(t)
	s.close()
	var layers []layer
	for i := range 5 {
		layers = append(layers, gzipLayer(t, file{name: fmt.Sprint(i), content: strings.Repeat("x", 100000)}))
	}
	r.image("app", "v1", hostPlatform, ocispec.ImageConfig{}, layers...)
	ref := r.host + "/app:v1"
	for n := range 12 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestChildPull$")
		cmd.Env = append(os.Environ(), envChildRoot+"="+s.root, envChildRef+"="+ref)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(40+17*n) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() // tells that it was killed; anything else shows in the status
		if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() {
			t.Errorf("the child ended by itself with %d", ws.ExitStatus())
		}
		s.open()
		s.check()
		keys, err := s.RootFSKeys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if err := s.RemoveRootFS(t.Context(), k); err != nil {
				t.Error(err)
			}
		}
		s.tree("c", s.mustPull(ref, ""))
		if n := s.parts(); n != 0 {
			t.Errorf("%d parts of blobs are left", n)
		}
		if err := s.RemoveRootFS(t.Context(), "c"); err != nil {
			t.Error(err)
		}
		if n := s.layerDirs(); n != len(layers) {
			t.Errorf("%d layer directories, want %d", n, len(layers))
		}
		if err := s.Remove(t.Context(), ref); err != nil {
			t.Error(err)
		}
		if b, l := s.blobs(), s.layerDirs(); b != 0 || l != 0 {
			t.Errorf("%d blobs and %d layers left", b, l)
		}
		s.close()
	}
}

func TestOpenErrors(t *testing.T) {
	s := newTestService(t)
	if _, err := Open(s.options); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second Open: %v", err)
	}
	p := parsePlatforms(t, hostPlatform)
	for name, handlers := range map[string][]HandlerPlatforms{
		"none":         nil,
		"no default":   {{Name: "a", Platforms: p}},
		"two defaults": {{Name: "a", Platforms: p, Default: true}, {Name: "b", Platforms: p, Default: true}},
		"twice":        {{Name: "a", Platforms: p, Default: true}, {Name: "a", Platforms: p}},
		"no name":      {{Platforms: p, Default: true}},
		"no platforms": {{Name: "a", Default: true}},
	} {
		if _, err := Open(Options{Root: t.TempDir(), Handlers: handlers}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
