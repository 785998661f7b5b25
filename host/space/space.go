// Package space knows errors of full disks, says what to do about them, and makes room without
// needing any.
package space

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/durable"
)

// Explain gives the error of a full disk its class, ResourceExhausted, and a text that says what to
// do about the file system of dir. Any other error is returned as it is, and one that was explained
// before too.
func Explain(dir string, err error) error {
	if !durable.Full(err) || errdefs.IsResourceExhausted(err) {
		return err
	}
	free, serr := Free(dir)
	if serr != nil {
		return errors.Join(err, serr, errdefs.ErrResourceExhausted)
	}
	return fmt.Errorf("%w: the filesystem of %q has no room (%d bytes free); remove images or containers: %w",
		err, dir, free, errdefs.ErrResourceExhausted)
}

// Size returns how many bytes the file system of dir has in all.
func Size(dir string) (int64, error) {
	return ask(dir, "size", func(st unix.Statfs_t) uint64 { return st.Blocks })
}

// Free returns how many bytes the file system of dir has for users that are not root.
func Free(dir string) (int64, error) {
	return ask(dir, "room", func(st unix.Statfs_t) uint64 { return st.Bavail })
}

func ask(dir, what string, blocks func(unix.Statfs_t) uint64) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("ask the filesystem of %q for its %s: %w", dir, what, err)
	}
	return int64(blocks(st)) * int64(st.Bsize), nil
}

// Empty removes what is in a directory. The directory itself stays: on a full disk it cannot be
// created again. A missing directory is no error.
func Empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, Remove(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}
