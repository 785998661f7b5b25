// Package disk makes small file systems for tests, and fills them.
package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// New mounts an ext4 of so many MiB on a new folder below parent until the test ends, and returns
// the folder. options are more of mkfs.ext4's.
func New(t *testing.T, parent string, mib int64, options ...string) string {
	t.Helper()
	dir, err := mounted(t, parent, mib, "loop", options...)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// WithProjects is New with project quotas. The test is skipped on a kernel without them.
func WithProjects(t *testing.T, parent string, mib int64) string {
	t.Helper()
	dir, err := mounted(t, parent, mib, "loop,prjquota", "-O", "quota,project", "-E", "quotatype=prjquota")
	if err != nil && strings.Contains(err.Error(), "wrong fs type") {
		t.Skip("this kernel has no project quotas: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func mounted(t *testing.T, parent string, mib int64, how string, options ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, mib<<20)); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(parent, "disk-")
	if err != nil {
		return "", err
	}
	for _, args := range [][]string{append(append([]string{"mkfs.ext4", "-q", "-F", "-m", "0"}, options...), file), {"mount", "-o", how, file, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount disk: %v", err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return dir, nil
}

// TakeBytes takes the last byte of a disk, and returns how to give all of it back.
func TakeBytes(t *testing.T, disk string) (free func()) {
	t.Helper()
	name := filepath.Join(disk, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{8 << 20, 1 << 20, 64 << 10, 4096, 1} { // others may make room meanwhile
		for err = nil; err == nil; {
			if _, err = f.Write(make([]byte, size)); err == nil && size < 8<<20 {
				err = f.Sync() // or room is only promised
			}
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// TakeInodes takes the last inode of a disk, and returns how to give all of them back.
func TakeInodes(t *testing.T, disk string) (free func()) {
	t.Helper()
	dir := filepath.Join(disk, "inodes")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600)
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
}

// Freeze lets every write to a disk wait until what it returns is called, at the latest at the end
// of the test.
func Freeze(t *testing.T, disk string) (thaw func()) {
	t.Helper()
	dir, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	const freeze, unfreeze = 0xc0045877, 0xc0045878 // FIFREEZE and FITHAW of linux/fs.h
	if err := unix.IoctlSetInt(int(dir.Fd()), freeze, 0); err != nil {
		t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() {
		defer dir.Close()
		if err := unix.IoctlSetInt(int(dir.Fd()), unfreeze, 0); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(thaw)
	return thaw
}
