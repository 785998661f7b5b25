package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRemoveTreeBesideItsShim removes a folder whose mount a shim unmounts at the same moment.
func TestRemoveTreeBesideItsShim(t *testing.T) {
	for range 500 {
		dir := t.TempDir()
		point := filepath.Join(dir, "bundle", "rootfs")
		if err := os.MkdirAll(point, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("x", point, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		unmounted := make(chan error)
		go func() { unmounted <- unix.Unmount(point, unix.MNT_DETACH) }()
		err := removeTree(filepath.Join(dir, "bundle"))
		if other := <-unmounted; other != nil && !errors.Is(other, unix.EINVAL) && !errors.Is(other, unix.ENOENT) {
			t.Fatal(other)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRemoveTreeKeepsWhatIsMounted mounts in a folder, in the ways that a bundle has, and removes
// it.
func TestRemoveTreeKeepsWhatIsMounted(t *testing.T) {
	for name, bind := range map[string]func(kept, dir string) error{
		"folder": func(kept, dir string) error { return unix.Mount(kept, filepath.Join(dir, "a"), "", unix.MS_BIND, "") },
		"file": func(kept, dir string) error {
			return unix.Mount(filepath.Join(kept, "file"), filepath.Join(dir, "file"), "", unix.MS_BIND, "")
		},
		"itself": func(kept, dir string) error { return unix.Mount(kept, dir, "", unix.MS_BIND, "") },
		"stack": func(kept, dir string) error {
			return errors.Join(unix.Mount(kept, filepath.Join(dir, "a"), "", unix.MS_BIND, ""), unix.Mount(kept, filepath.Join(dir, "a"), "", unix.MS_BIND, ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			kept, dir := t.TempDir(), filepath.Join(t.TempDir(), "dir")
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a"), 0o755), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600),
				os.WriteFile(filepath.Join(kept, "file"), nil, 0o600), bind(kept, dir), removeTree(dir)); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is there: %v", err)
			}
			if _, err := os.Stat(filepath.Join(kept, "file")); err != nil {
				t.Errorf("what was mounted: %v", err)
			}
		})
	}
}
