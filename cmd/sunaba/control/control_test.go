package control

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/images"
)

// archive writes a Docker archive of an image for this machine.
func archive(t *testing.T, tag string) string {
	t.Helper()
	img, err := random.Image(1024, 2)
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c.OS, c.Architecture, c.Config = "linux", runtime.GOARCH, v1.Config{Env: []string{"A=1"}}
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewTag(tag)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := tarball.WriteToFile(file, ref, img); err != nil {
		t.Fatal(err)
	}
	return file
}

func newService(t *testing.T) *images.Service {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test uses overlayfs: run it as root")
	}
	s, err := images.Open(images.Options{
		Root: t.TempDir(), KeepLayers: true,
		Handlers: []images.HandlerPlatforms{{Name: "runc", Platforms: []ocispec.Platform{{OS: "linux", Architecture: runtime.GOARCH}}, Default: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connect serves a service and connects to it, on a socket with a long path.
func connect(t *testing.T, s *images.Service) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), strings.Repeat("long", 25), "images.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Connect(t.Context(), socket); !errdefs.IsUnavailable(err) {
		t.Errorf("no server: %v", err)
	}
	srv, err := Listen(socket, s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
	c, err := Connect(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), srv.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(socket); !os.IsNotExist(err) {
			t.Errorf("the socket is left (%v)", err)
		}
		if _, err := Connect(context.Background(), socket); !errdefs.IsUnavailable(err) {
			t.Errorf("after the end: %v", err)
		}
	})
	return c
}

func TestClientIsTheStore(t *testing.T) {
	s := newService(t)
	c := connect(t, s)
	ctx := t.Context()
	file := archive(t, "example.org/app:v1")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var phases []string
	progress := func(p images.Progress) { phases = append(phases, p.Phase) }
	got, err := c.Import(ctx, images.ImportRequest{Path: file, Progress: progress})
	if err != nil || len(got) != 1 || !slices.Contains(phases, "fetch") {
		t.Fatalf("Import: %+v, %v, phases %q", got, err, phases)
	}
	want, err := s.Find(ctx, "example.org/app:v1", "")
	if err != nil || want.ID != got[0].ID || got[0].Config.Env[0] != "A=1" {
		t.Errorf("imported %+v, %v", want, err)
	}
	if again, err := c.Import(ctx, images.ImportRequest{Reader: bytes.NewReader(data), Name: "unused", Progress: progress}); err != nil || again[0].ID != want.ID {
		t.Errorf("Import of a stream: %+v, %v", again, err)
	}
	if list, err := c.List(ctx); err != nil || len(list) != 1 || list[0].ID != want.ID || list[0].Size != want.Size {
		t.Errorf("List: %+v, %v", list, err)
	}
	if img, err := c.Find(ctx, want.ID, ""); err != nil || img.Platform.Architecture != runtime.GOARCH {
		t.Errorf("Find: %+v, %v", img, err)
	}
	var out bytes.Buffer
	if err := c.ExportTo(ctx, []string{"example.org/app:v1"}, &out); err != nil || out.Len() < 2048 {
		t.Errorf("Export: %d bytes, %v", out.Len(), err)
	}
	if r, err := c.Check(ctx, true); err != nil || r.Images != 1 || len(r.Damaged) != 0 {
		t.Errorf("Check: %+v, %v", r, err)
	}
	if err := c.Remove(ctx, "example.org/app:v1"); err != nil {
		t.Error(err)
	}
	if g, err := c.GC(ctx, true); err != nil || g != (images.Garbage{}) {
		t.Errorf("GC: %+v, %v", g, err)
	}
	other := connect(t, newService(t))
	if back, err := other.Import(ctx, images.ImportRequest{Reader: &out}); err != nil || back[0].ID != want.ID {
		t.Errorf("Import of what was exported: %+v, %v", back, err)
	}
}

func TestErrorsKeepTheirClass(t *testing.T) {
	c := connect(t, newService(t))
	ctx := t.Context()
	_, notFound := c.Find(ctx, "absent", "")
	_, badName := c.Pull(ctx, images.PullRequest{Ref: "a:-x"})
	_, noFile := c.Import(ctx, images.ImportRequest{Path: "/nowhere"})
	_, noArchive := c.Import(ctx, images.ImportRequest{Reader: strings.NewReader("no archive")})
	_, unreachable := c.Pull(ctx, images.PullRequest{Ref: "127.0.0.1:1/a"})
	for name, tt := range map[string]struct {
		err   error
		class func(error) bool
		text  string
	}{
		"find":        {notFound, errdefs.IsNotFound, `image "absent"`},
		"pull":        {badName, errdefs.IsInvalidArgument, "a:-x"},
		"import":      {noFile, errdefs.IsNotFound, "/nowhere"},
		"stream":      {noArchive, errdefs.IsInvalidArgument, "read images"},
		"export":      {c.ExportTo(ctx, []string{"absent"}, io.Discard), errdefs.IsNotFound, "absent"},
		"no names":    {c.ExportTo(ctx, nil, io.Discard), errdefs.IsInvalidArgument, "none is named"},
		"unreachable": {unreachable, func(err error) bool { return err != nil && !errdefs.IsNotFound(err) }, "RegistryUnavailable: "},
	} {
		if !tt.class(tt.err) || !strings.Contains(tt.err.Error(), tt.text) {
			t.Errorf("%s: %v", name, tt.err)
		}
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.List(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
