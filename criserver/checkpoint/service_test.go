package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A folder of a checkpoint that cannot be removed is removed once it can be.
func TestRemoveLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	busy := filepath.Join(dir, "busy")
	if err := errors.Join(os.MkdirAll(busy, 0o700), unix.Mount("none", busy, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	err := remove(dir)
	if err := unix.Unmount(busy, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err == nil {
		t.Error("no error where it cannot be removed")
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the folder is still there")
		}
	}
}
