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
