package checkpoint

import (
	"context"
	"errors"
	"log/slog"
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
	awaitRemoval(t, dir)
}

// A checkpoint that is made is no failure because its work folder cannot be removed yet.
func TestCaptureWhoseFolderStays(t *testing.T) {
	s, err := New(Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var busy string
	err = s.Capture(t.Context(), nil, func(context.Context, []Captured) error {
		work, err := filepath.Glob(filepath.Join(s.o.Dir, "*"))
		if err != nil || len(work) != 1 {
			t.Fatalf("work folders: %q, %v", work, err)
		}
		busy = filepath.Join(work[0], "busy")
		return errors.Join(os.Mkdir(busy, 0o700), unix.Mount("none", busy, "tmpfs", 0, ""))
	})
	if err := unix.Unmount(busy, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Errorf("the checkpoint failed: %v", err)
	}
	awaitRemoval(t, filepath.Dir(busy))
}

// awaitRemoval waits until a folder is removed.
func awaitRemoval(t *testing.T, dir string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the folder is still there")
		}
	}
}
