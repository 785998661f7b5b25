package quota_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/quota"
	"github.com/sunaba-project/sunaba/tests/disk"
)

// What is written, linked, deleted while it is open and removed is counted as the kernel counts it.
func TestProject(t *testing.T) {
	var giver quota.Giver
	on := disk.WithProjects(t, t.TempDir(), 64)
	a, b := folder(t, on, "a"), folder(t, on, "b")
	for _, dir := range []string{a, b} {
		if given, err := giver.Assign(dir); err != nil || !given {
			t.Fatalf("%s: %t, %v", dir, given, err)
		}
	}
	used(t, a, 1)
	sub := folder(t, a, "sub")
	write(t, filepath.Join(sub, "file"), 1<<20)
	if err := os.Link(filepath.Join(sub, "file"), filepath.Join(a, "again")); err != nil {
		t.Fatal(err)
	}
	if bytes := used(t, a, 3); bytes < 1<<20 || bytes > 1<<20+64<<10 {
		t.Errorf("%d bytes", bytes)
	}
	used(t, b, 1)
	// One in a project is in one already, and so is what was made in it.
	for _, dir := range []string{a, sub} {
		if given, err := giver.Assign(dir); err != nil || given {
			t.Errorf("given twice: %s: %t, %v", dir, given, err)
		}
	}
	if _, is, err := quota.Used(sub); err != nil || is {
		t.Errorf("a folder within a project counts as one: %t, %v", is, err)
	}
	open, err := os.Open(filepath.Join(sub, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(a, "again")), os.Remove(filepath.Join(sub, "file"))); err != nil {
		t.Fatal(err)
	}
	if bytes := used(t, a, 3); bytes < 1<<20 {
		t.Errorf("what is open is not counted: %d bytes", bytes)
	}
	if err := errors.Join(open.Close(), os.RemoveAll(sub)); err != nil {
		t.Fatal(err)
	}
	used(t, a, 1)
}

// An administrator's project holds what is made below it, with its limit.
func TestInheritedProject(t *testing.T) {
	var giver quota.Giver
	above := folder(t, disk.WithProjects(t, t.TempDir(), 64), "above")
	if given, err := giver.Assign(above); err != nil || !given {
		t.Fatal(given, err)
	}
	dir := folder(t, above, "dir")
	if given, err := giver.Assign(dir); err != nil || given {
		t.Errorf("%t, %v", given, err)
	}
	if _, is, err := quota.Used(dir); err != nil || is {
		t.Errorf("%t, %v", is, err)
	}
}

// Where there are no project quotas, there is no error either.
func TestWithoutQuotas(t *testing.T) {
	var giver quota.Giver
	memory := t.TempDir()
	if err := unix.Mount("test", memory, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(memory, 0) })
	for _, on := range []string{disk.New(t, t.TempDir(), 16), memory} {
		dir := folder(t, on, "dir")
		if given, err := giver.Assign(dir); err != nil || given {
			t.Errorf("%s: %t, %v", on, given, err)
		}
		if _, is, err := quota.Used(dir); err != nil || is {
			t.Errorf("%s: %t, %v", on, is, err)
		}
	}
	for _, dir := range []string{filepath.Join(memory, "missing"), filepath.Join(memory, "missing/dir")} {
		if _, err := giver.Assign(dir); !errors.Is(err, unix.ENOENT) {
			t.Error(err)
		}
		if _, _, err := quota.Used(dir); !errors.Is(err, unix.ENOENT) {
			t.Error(err)
		}
	}
}

func folder(t *testing.T, above, name string) string {
	t.Helper()
	path := filepath.Join(above, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, path string, size int) {
	t.Helper()
	f, err := os.Create(path)
	if err == nil {
		_, err = f.Write(make([]byte, size))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil { // blocks are counted when they are taken
		t.Fatal(err)
	}
}

func used(t *testing.T, dir string, inodes int64) (bytes int64) {
	t.Helper()
	use, is, err := quota.Used(dir)
	if err != nil || !is || use.Inodes != inodes {
		t.Errorf("%s: %+v, %t, %v; want %d inodes", dir, use, is, err, inodes)
	}
	return use.Bytes
}
