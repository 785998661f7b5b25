package space

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestExplain(t *testing.T) {
	dir := t.TempDir()
	for _, cause := range []error{unix.ENOSPC, unix.EDQUOT} {
		write := &fs.PathError{Op: "write", Path: "layer", Err: cause}
		err := Explain(dir, write)
		if !errdefs.IsResourceExhausted(err) || !errors.Is(err, cause) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v: %v", write, err)
		}
		if again := Explain("/", err); again != err {
			t.Errorf("explained twice: %v", again)
		}
		gone := filepath.Join(dir, "gone")
		if err := Explain(gone, write); !errdefs.IsResourceExhausted(err) || !errors.Is(err, cause) {
			t.Errorf("of a folder that is gone: %v", err)
		}
	}
	for _, other := range []error{nil, unix.EIO, errdefs.ErrNotFound} {
		if err := Explain(dir, other); err != other {
			t.Errorf("%v became %v", other, err)
		}
	}
}

func TestFree(t *testing.T) {
	if free, err := Free(t.TempDir()); err != nil || free <= 0 {
		t.Errorf("a folder has %d bytes: %v", free, err)
	}
	if _, err := Free(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestSize(t *testing.T) {
	dir := t.TempDir()
	size, err := Size(dir)
	if err != nil {
		t.Fatal(err)
	}
	free, err := Free(dir)
	if err != nil || size <= 0 || size < free {
		t.Errorf("size %d, free %d, %v", size, free, err)
	}
	if _, err := Size(dir + "/none"); err == nil {
		t.Error("a folder that is not there has a size")
	}
}

func TestEmptyKeepsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	before, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755), os.WriteFile(filepath.Join(dir, "c"), nil, 0o600), Empty(dir)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if after, err := os.Stat(dir); err != nil || !os.SameFile(before, after) {
		t.Errorf("the directory was made again: %v", err)
	}
	if err := Empty(filepath.Join(dir, "gone")); err != nil {
		t.Errorf("one that is not there: %v", err)
	}
}
