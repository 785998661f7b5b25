package mount

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("must run as root")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	outer, inner := filepath.Join(dir, "a b"), filepath.Join(dir, "a b", "inner")
	beside, link := filepath.Join(dir, "a b-beside"), filepath.Join(dir, "link")
	mount := func(path string) {
		t.Helper()
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", path, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for unix.Unmount(path, unix.MNT_DETACH) == nil {
				continue
			}
		})
	}
	for _, path := range []string{outer, outer, inner, beside} {
		mount(path)
	}
	if err := os.Symlink(beside, link); err != nil {
		t.Fatal(err)
	}
	is := func(when, dir string, want ...string) {
		t.Helper()
		if got, err := Below(dir); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: mounts %q, want %q, %v", when, got, want, err)
		}
	}
	is("mounted", outer, outer, outer, inner)
	for _, path := range []string{link, filepath.Join(dir, "missing"), dir, "/proc/version/x"} {
		if err := Detach(path); err != nil {
			t.Errorf("detach %q: %v", path, err)
		}
	}
	is("nothing was detached", dir, outer, outer, inner, beside)
	if err := DetachBelow(outer); err != nil {
		t.Error(err)
	}
	is("detached", dir, beside)
	if err := Detach(beside); err != nil {
		t.Error(err)
	}
	is("all detached", dir)
	if err := DetachBelow(filepath.Join(dir, "missing")); err != nil {
		t.Errorf("below a missing folder: %v", err)
	}
}
