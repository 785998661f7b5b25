package checkpoint

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// zeros is a stream without end that packs well.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// bomb makes a small archive with one long file.
func bomb(t *testing.T, file, name string, size int64) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	err = w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: size, Mode: 0o600})
	if err == nil {
		_, err = io.CopyN(w, zeros{}, size)
	}
	if err = errors.Join(err, w.Close(), z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// size is how many bytes the files of a tree have.
func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A small archive does not unpack to more than the limit, wherever that is hidden.
func TestBombs(t *testing.T) {
	const limit = 1 << 20
	wants := func(what string, err error) {
		t.Helper()
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "more than 1048576 bytes") {
			t.Errorf("%s: %v", what, err)
		}
	}
	archive, to := filepath.Join(t.TempDir(), "a.tar"), t.TempDir()
	bomb(t, archive, ConfigFile, 64*limit)
	wants("an archive", Unpack(t.Context(), archive, to, limit))
	if n := size(t, to); n > limit {
		t.Errorf("%d bytes were unpacked", n)
	}
	from := t.TempDir()
	to = t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(from, ConfigFile), nil, 0o600), os.Truncate(filepath.Join(from, ConfigFile), 1<<40)); err != nil {
		t.Fatal(err)
	}
	wants("an image", Copy(t.Context(), from, to, limit))
	if n := size(t, to); n > limit {
		t.Errorf("%d bytes were copied", n)
	}
	dir, root := t.TempDir(), t.TempDir()
	bomb(t, filepath.Join(dir, RootFile), "x", 64*limit)
	wants("a root filesystem", ApplyRoot(t.Context(), dir, root, limit))
	if n := size(t, root); n > limit {
		t.Errorf("%d bytes were written", n)
	}
}

// A document of a checkpoint is not read into memory whatever its length, and only if it is a file.
func TestLongDocuments(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, SpecFile)
	if err := errors.Join(os.WriteFile(long, nil, 0o600), os.Truncate(long, 1<<40), os.Symlink("/dev/zero", filepath.Join(dir, ConfigFile))); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{long, filepath.Join(dir, ConfigFile)} {
		var v any
		if err := ReadJSON(file, &v); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), filepath.Base(file)) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, DeletedFile), nil, 0o600), os.Truncate(filepath.Join(dir, DeletedFile), 1<<40)); err != nil {
		t.Fatal(err)
	}
	if err := ApplyRoot(t.Context(), dir, t.TempDir(), 1<<20); !errdefs.IsInvalidArgument(err) {
		t.Errorf("what was removed: %v", err)
	}
}
