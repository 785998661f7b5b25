package facts

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestIDMappedMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("mounting needs root")
	}
	dir := t.TempDir()
	// A process that was killed while it tried left this.
	if err := os.MkdirAll(filepath.Join(dir, "idmap-1", "merged"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", filepath.Join(dir, "idmap-1", "merged"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	can, err := IDMappedMounts(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %v", dir, can)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if can, err := IDMappedMounts("/dev/shm/../../proc"); err == nil || can {
		t.Errorf("/proc: %v, %v", can, err)
	}
}
