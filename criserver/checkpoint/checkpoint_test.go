package checkpoint

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestPackAndUnpack(t *testing.T) {
	from, out := t.TempDir(), t.TempDir()
	write(t, from, map[string]string{ConfigFile: "{}", SpecFile: "{}", "checkpoint/inventory.img": "state", LogFile: strings.Repeat("a line\n", 10000)})
	location := filepath.Join(out, "a.tar")
	for range 2 { // the second takes the place of the first
		if err := Pack(t.Context(), from, location); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(location); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	plain, err := os.ReadFile(location)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	write(t, out, map[string]string{"b.tar.gz": packed.String()})
	for _, name := range []string{"a.tar", "b.tar.gz"} {
		to := t.TempDir()
		if err := Unpack(t.Context(), filepath.Join(out, name), to, 1<<30); err != nil {
			t.Fatal(err)
		}
		for file, want := range map[string]int{LogFile: 70000, "checkpoint/inventory.img": 5} {
			if data, err := os.ReadFile(filepath.Join(to, file)); err != nil || len(data) != want {
				t.Errorf("%s of %s: %d bytes, %v", file, name, len(data), err)
			}
		}
	}
}

// What cannot be written leaves nothing.
func TestPackFails(t *testing.T) {
	from, out := t.TempDir(), t.TempDir()
	write(t, from, map[string]string{"a": "x"})
	if err := os.Mkdir(filepath.Join(out, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Pack(gone, from, filepath.Join(out, "a.tar")); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	for _, bad := range []string{"folder", "missing/a.tar"} {
		if err := Pack(t.Context(), from, filepath.Join(out, bad)); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	if err := Pack(t.Context(), from, filepath.Join(out, "a.tar")); err == nil {
		t.Error("a symbolic link was packed")
	}
	if left := names(t, out); !slices.Equal(left, []string{"folder"}) {
		t.Errorf("left: %q", left)
	}
}

// An archive may come from anywhere.
func TestUnpackRefuses(t *testing.T) {
	for what, header := range map[string]tar.Header{
		"a name that leads out": {Name: "../evil", Typeflag: tar.TypeReg},
		"a symbolic link":       {Name: "checkpoint", Typeflag: tar.TypeSymlink, Linkname: "/etc"},
		"a hard link":           {Name: "x", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
		"a device":              {Name: "x", Typeflag: tar.TypeChar},
		"too little":            {Name: ConfigFile, Typeflag: tar.TypeReg},
	} {
		out := t.TempDir()
		f, err := os.Create(filepath.Join(out, "a.tar"))
		if err != nil {
			t.Fatal(err)
		}
		w := tar.NewWriter(f)
		if err := errors.Join(w.WriteHeader(&header), w.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(out, "to")
		if err := os.Mkdir(to, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := Unpack(t.Context(), f.Name(), to, 1<<30); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", what, err)
		}
		if left := names(t, out); !slices.Equal(left, []string{"a.tar", "to"}) {
			t.Errorf("%s has left %q", what, left)
		}
	}
	if err := Unpack(t.Context(), filepath.Join(t.TempDir(), "none"), t.TempDir(), 1<<30); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no archive: %v", err)
	}
	text := filepath.Join(t.TempDir(), "text")
	write(t, filepath.Dir(text), map[string]string{"text": strings.Repeat("no archive ", 100)})
	if err := Unpack(t.Context(), text, t.TempDir(), 1<<30); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a text: %v", err)
	}
}

// An image that was made of an archive has its files among others, and comes from anywhere too.
func TestCopy(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, from, map[string]string{ConfigFile: "{}", SpecFile: "spec", "checkpoint/deep/inventory": "x", RootFile: "changes", "etc/more": "of the image"})
	if err := Copy(t.Context(), from, to, 1<<30); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "inventory.img") {
		t.Errorf("too little: %v", err)
	}
	write(t, from, map[string]string{"checkpoint/inventory.img": "state"})
	if err := os.Symlink("/etc", filepath.Join(from, "etc", "link")); err != nil {
		t.Fatal(err)
	}
	to = t.TempDir()
	if err := Copy(t.Context(), from, to, 1<<30); err != nil {
		t.Fatal(err)
	}
	if got := names(t, to); !slices.Equal(got, []string{StateDir, ConfigFile, RootFile, SpecFile}) {
		t.Errorf("copied: %q", got)
	}
	for name, want := range map[string]string{SpecFile: "spec", "checkpoint/deep/inventory": "x", "checkpoint/inventory.img": "state"} {
		if data, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	for _, name := range []string{SpecFile, StateDir, filepath.Join(StateDir, "inventory.img")} {
		evil := t.TempDir()
		write(t, evil, map[string]string{ConfigFile: "{}", SpecFile: "spec", "checkpoint/inventory.img": "state"})
		if err := errors.Join(os.RemoveAll(filepath.Join(evil, name)), os.Symlink("/etc", filepath.Join(evil, name))); err != nil {
			t.Fatal(err)
		}
		if err := Copy(t.Context(), evil, t.TempDir(), 1<<30); !errdefs.IsInvalidArgument(err) {
			t.Errorf("a symbolic link as %s: %v", name, err)
		}
	}
}

// overlay mounts layers as a container has them; what is written goes to upper.
func overlay(t *testing.T, l Layers) string {
	t.Helper()
	root, work := t.TempDir(), filepath.Join(filepath.Dir(l.Upper), "work-"+filepath.Base(l.Upper))
	if err := os.MkdirAll(work, 0o700); err != nil {
		t.Fatal(err)
	}
	options := "upperdir=" + l.Upper + ",workdir=" + work + ",lowerdir=" + strings.Join(l.Lower, ":")
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		t.Fatalf("mount an overlay (as root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return root
}

// What a container wrote and removed is the same after it was written down and applied to the same
// image.
func TestRootFilesystem(t *testing.T) {
	base := t.TempDir()
	low, top := filepath.Join(base, "low"), filepath.Join(base, "top")
	write(t, low, map[string]string{"etc/passwd": "root", "etc/group": "root", "opt/old/a": "a", "opt/old/b/c": "c", "keep": "keep"})
	write(t, top, map[string]string{"opt/old/d": "d", "etc/top": "top"})
	change := Layers{Upper: filepath.Join(base, "up1"), Lower: []string{top, low}}
	again := Layers{Upper: filepath.Join(base, "up2"), Lower: change.Lower}
	for _, dir := range []string{change.Upper, again.Upper} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root := overlay(t, change)
	if err := errors.Join(os.Remove(filepath.Join(root, "etc/group")), os.RemoveAll(filepath.Join(root, "opt/old"))); err != nil {
		t.Fatal(err)
	}
	write(t, root, map[string]string{"opt/old/e": "e", "etc/passwd": "changed", "new/file": "new"})
	if err := errors.Join(
		os.Symlink("/etc/passwd", filepath.Join(root, "new/link")), os.Link(filepath.Join(root, "new/file"), filepath.Join(root, "new/hard")),
		os.Chmod(filepath.Join(root, "new/file"), 0o4755), os.Chown(filepath.Join(root, "new/file"), 7, 8),
		unix.Mkfifo(filepath.Join(root, "new/fifo"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	archive := t.TempDir()
	f, err := os.Create(filepath.Join(archive, RootFile))
	if err != nil {
		t.Fatal(err)
	}
	deleted, err := change.WriteRoot(t.Context(), f)
	if err := errors.Join(err, f.Close(), WriteJSON(filepath.Join(archive, DeletedFile), deleted)); err != nil {
		t.Fatal(err)
	}
	slices.Sort(deleted)
	if want := []string{"/etc/group", "/opt/old/a", "/opt/old/b", "/opt/old/d"}; !slices.Equal(deleted, want) {
		t.Errorf("deleted: %q, want %q", deleted, want)
	}
	other := overlay(t, again)
	if err := ApplyRoot(t.Context(), archive, other, 1<<30); err != nil {
		t.Fatal(err)
	}
	if was, is := listing(t, root), listing(t, other); was != is {
		t.Errorf("was\n%s\nis\n%s", was, is)
	}
}

// listing is every file of a tree with what matters of it.
func listing(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		text := ""
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(data)
		case info.Mode()&os.ModeSymlink != 0:
			text, _ = os.Readlink(path)
		}
		b.WriteString(strings.Join([]string{path[len(root):], info.Mode().String(), string(rune('0' + st.Uid)), string(rune('0' + st.Gid)), text}, " ") + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The list of removed files comes from strangers, and so does the tree.
func TestApplyStaysInside(t *testing.T) {
	base := t.TempDir()
	write(t, base, map[string]string{"root/x": "x", "outside/file": "f"})
	if err := os.Symlink("../outside", filepath.Join(base, "root/out")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../outside/file", "/../../outside/file", "/out/file", "/", ""} {
		dir := t.TempDir()
		if err := WriteJSON(filepath.Join(dir, DeletedFile), []string{name}); err != nil {
			t.Fatal(err)
		}
		err := ApplyRoot(t.Context(), dir, filepath.Join(base, "root"), 1<<30)
		if _, serr := os.Stat(filepath.Join(base, "outside/file")); serr != nil {
			t.Fatalf("%q has removed a file outside: %v", name, err)
		}
		if (name == "/" || name == "") && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
