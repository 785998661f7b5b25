package facts

import (
	"os"
	"testing"
)

func TestIDMappedMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("mounting needs root")
	}
	dir := t.TempDir()
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
