package layout

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func blobOf(s string) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: "text/plain", Digest: digest.FromString(s), Size: int64(len(s))}
}

// written is an archive of two texts, the first of which is an image.
func written(t *testing.T, open func(ocispec.Descriptor) (io.ReadCloser, error)) ([]byte, error) {
	t.Helper()
	var out bytes.Buffer
	image, layer := blobOf("image"), blobOf("layer")
	err := Write(&out, []Named{{Name: "example.org/a:v1", Root: image}, {Name: "example.org/a@" + image.Digest.String(), Root: image}},
		[]DockerImage{{Config: image, Tags: []string{"example.org/a:v1"}, Layers: []ocispec.Descriptor{layer}}}, []ocispec.Descriptor{image, layer}, open)
	return out.Bytes(), err
}

func texts(d ocispec.Descriptor) (io.ReadCloser, error) {
	for _, s := range []string{"image", "layer"} {
		if d.Digest == digest.FromString(s) {
			return io.NopCloser(bytes.NewBufferString(s)), nil
		}
	}
	return nil, errdefs.ErrNotFound
}

func TestWriteAndRead(t *testing.T) {
	data, err := written(t, texts)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "layout")
	if err := Unpack(bytes.NewReader(data), dir); err != nil {
		t.Fatal(err)
	}
	if err := Unpack(bytes.NewReader(data), dir); !errdefs.IsAlreadyExists(err) {
		t.Errorf("Unpack into what is there: %v", err)
	}
	spool := filepath.Join(t.TempDir(), "spool")
	fromDir, err := Open(t.Context(), dir, spool)
	if err != nil {
		t.Fatal(err)
	}
	fromStream, err := Read(t.Context(), bytes.NewReader(data), spool)
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*Layout{"directory": fromDir, "stream": fromStream} {
		roots := l.Roots()
		if len(roots) != 2 || roots[0].Name != "example.org/a:v1" || roots[1].Name != "example.org/a@"+roots[1].Desc.Digest.String() || roots[0].Desc.Annotations != nil {
			t.Errorf("%s: %+v", name, roots)
		}
		for _, offset := range []int64{0, 3, 5} {
			r, err := l.Fetch(t.Context(), blobOf("layer"), offset)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || string(got) != "layer"[offset:] {
				t.Errorf("%s from %d: %q, %v", name, offset, got, err)
			}
			r.Close()
		}
		if _, err := l.Fetch(t.Context(), blobOf("absent"), 0); !errdefs.IsNotFound(err) || l.Has(digest.FromString("absent")) {
			t.Errorf("%s: absent: %v", name, err)
		}
		if _, err := l.Fetch(t.Context(), ocispec.Descriptor{Digest: "sha256:../../etc/passwd"}, 0); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: a hostile digest: %v", name, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(spool); err != nil || len(left) != 0 {
		t.Errorf("%d spooled, %v", len(left), err)
	}
}

func TestWriteFails(t *testing.T) {
	broken := errors.New("broken")
	if _, err := written(t, func(ocispec.Descriptor) (io.ReadCloser, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("a blob that cannot be opened: %v", err)
	}
	if _, err := written(t, func(ocispec.Descriptor) (io.ReadCloser, error) { return io.NopCloser(bytes.NewBufferString("im")), nil }); err == nil {
		t.Error("a blob that is too short was written")
	}
}

// A directory from strangers leads nowhere out of itself, and is no device.
func TestHostileDirectory(t *testing.T) {
	dir := t.TempDir()
	d := digest.FromString("secret")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755),
		os.WriteFile(filepath.Join(dir, "index.json"), []byte(`{"manifests":[]}`), 0o600),
		os.Symlink("/etc/hostname", filepath.Join(dir, "blobs", "sha256", d.Encoded())),
		os.Symlink("/dev/zero", filepath.Join(dir, "manifest.json"))); err != nil {
		t.Fatal(err)
	}
	l, err := Open(t.Context(), dir, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if r, err := l.Fetch(t.Context(), ocispec.Descriptor{Digest: d}, 0); err == nil {
		r.Close()
		t.Error("a link out of the directory was followed")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("no archive"))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, data []byte) {
		spool := t.TempDir()
		l, err := Read(t.Context(), bytes.NewReader(data), spool)
		if err == nil {
			for _, r := range l.Roots() {
				if f, err := l.Fetch(t.Context(), r.Desc, 0); err == nil {
					f.Close()
				}
			}
			l.Close()
		}
		if left, err := os.ReadDir(spool); err != nil || len(left) != 0 {
			t.Errorf("%d spooled, %v", len(left), err)
		}
	})
}
