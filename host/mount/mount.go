// Package mount describes, lists and detaches mounts.
package mount

import (
	"errors"
	"fmt"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Mount is one mount of a root filesystem, in the fields of containerd's Task API and the form of
// the records.
type Mount struct {
	Type    string   `json:"type"`
	Source  string   `json:"source"`
	Target  string   `json:"target,omitempty"` // below the root, "" = the root itself
	Options []string `json:"options,omitempty"`
}

// Below lists the mount points at and below a folder, the latest last. The folder's path has no
// symbolic links.
func Below(dir string) ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("list mounts below %q: %w", dir, err)
	}
	points := make([]string, len(mounts))
	for i, m := range mounts {
		points[i] = m.Mountpoint
	}
	return points, nil
}

// Detach removes the latest mount at a path from the mount table; the kernel unmounts it when it is
// no longer in use. A symbolic link is not followed. A path without a mount, or a missing one, is
// no error.
func Detach(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return fmt.Errorf("unmount %q: %w", path, err)
}

// DetachBelow detaches the mounts at and below a folder, the latest first. The folder's path has no
// symbolic links.
func DetachBelow(dir string) error {
	points, err := Below(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range slices.Backward(points) {
		errs = append(errs, Detach(point)) // somebody else may have unmounted it meanwhile
	}
	return errors.Join(errs...)
}
