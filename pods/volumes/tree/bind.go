package tree

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// A subPath mount shows a part of a volume that containers may change at the same time: what a path
// in it leads to may be another thing at each look. So the path is resolved once, by the kernel,
// which does not leave the volume, and what was found is bound to a place that only root changes.
// The server mounts from that place.

// below are the rules by which paths in volumes are resolved.
const below = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS

// Bind binds what a path in a volume leads to, to a place. If there is nothing yet, folders are
// made, unless the volume is one that is only read. Whoever unmounts the place does so before its
// folder is removed.
//
// # Errors
//
// ErrInvalidArgument for a path that is not IsLocal, ErrNotFound if there is nothing in a volume
// that is only read, ErrFailedPrecondition if a link leads out; else those of the file system.
func Bind(volume, subPath, place string, readOnly bool) error {
	if !IsLocal(subPath) {
		return fmt.Errorf("%q is not a relative path without ..: %w", subPath, errdefs.ErrInvalidArgument)
	}
	root, err := openFolder(volume)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	fd, err := openat2(root, subPath, unix.O_PATH, below)
	if errors.Is(err, unix.ENOENT) && readOnly {
		return errdefs.ErrNotFound.WithMessage(fmt.Sprintf("subPath %q: the volume has no such file", subPath))
	}
	if errors.Is(err, unix.ENOENT) {
		fd, err = makeSubPath(root, subPath)
	}
	if errors.Is(err, unix.EXDEV) {
		return errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf("subPath %q: leads out of the volume", subPath))
	}
	if err != nil {
		return &os.PathError{Op: "open subPath", Path: subPath, Err: err}
	}
	defer unix.Close(fd)
	return bindTo(fd, place)
}

// makeSubPath makes the folders of a path that are not there, with the mode of the volume's folder,
// and opens the last one.
func makeSubPath(root int, subPath string) (fd int, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return -1, err
	}
	above, at := root, "."
	defer func() {
		if above != root {
			unix.Close(above)
		}
	}()
	for part := range strings.SplitSeq(path.Clean(subPath), "/") {
		at = path.Join(at, part)
		next, err := openat2(root, at, unix.O_PATH|unix.O_DIRECTORY, below)
		if errors.Is(err, unix.ENOENT) {
			if err = makeIn(above, part, st.Mode&0o7777); err == nil {
				next, err = openat2(root, at, unix.O_PATH|unix.O_DIRECTORY, below)
			}
		}
		if err != nil {
			return -1, err
		}
		if above != root {
			unix.Close(above)
		}
		above = next
	}
	fd, above = above, root
	return fd, nil
}

// makeIn makes a folder in another one. If somebody else has made something of that name, it stays
// as it is.
func makeIn(above int, name string, mode uint32) error {
	// above was opened as a place, and names in it are looked up as in any folder.
	if err := unix.Mkdirat(above, name, 0o700); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return nil
		}
		return err
	}
	fd, err := openat2(above, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, below|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_XDEV)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, mode)
}

// bindTo makes a place of the kind that a descriptor is open for, and binds that to it.
func bindTo(fd int, place string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := os.Mkdir(place, 0o700); err != nil {
			return err
		}
	} else {
		f, err := os.OpenFile(place, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	if err := unix.Mount(nameOf(fd), place, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind subPath to %q: %w", place, err)
	}
	return nil
}
