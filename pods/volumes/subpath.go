package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/host/space"
)

// newSubPaths makes a folder for the subPath mounts of one attempt of a container, and releases
// those of earlier attempts, whose release was lost with an earlier daemon.
func newSubPaths(p places, container string) (string, error) {
	dir := filepath.Join(p.subPaths(), container)
	if err := releaseAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(dir, "")
}

// place is that of one mount of a container.
func place(dir string, index int) string { return filepath.Join(dir, strconv.Itoa(index)) }

// releaseAll detaches all mounts at and below a folder, and removes it with what is in it. If a
// mount cannot be detached, nothing is removed.
func releaseAll(dir string) error {
	for tries := 0; ; tries++ {
		mounts, err := mount.Below(dir)
		if err != nil {
			return err
		}
		if len(mounts) == 0 {
			break
		}
		if tries == 3 { // others mount there all the time
			return fmt.Errorf("remove %q: %q is a mount point: %w", dir, mounts[0], errdefs.ErrFailedPrecondition)
		}
		if err := mount.DetachBelow(dir); err != nil {
			return err
		}
	}
	// The kernel refuses to remove a mount point, should there be a new one.
	return space.Remove(dir)
}

// removeIfEmpty removes a folder that has nothing in it.
func removeIfEmpty(dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &os.PathError{Op: "remove", Path: dir, Err: err}
}
