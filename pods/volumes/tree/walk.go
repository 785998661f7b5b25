// Package tree works in trees of files that containers change at the same time: it gives them
// to a group and binds parts of them to other places. It follows no link out of a tree,
// enters no mounts, and opens nothing but folders, so that no pipe or device can hold it.
package tree

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// deepest is how many folders, each in the other, a walk enters. So many are open at once.
const deepest = 128

// at is how many names of a folder are read at a time.
const at = 256

// walk visits what is below a folder, folders before what is in them, until it has visited limit
// entries; complete says whether that was all. It enters no mounts, follows no links and opens
// nothing but folders. What others move or remove meanwhile may be visited or not.
func walk(ctx context.Context, root int, limit int64, visit func(dir int, name string, st *unix.Statx_t) error) (complete bool, err error) {
	w := &walker{ctx: ctx, left: limit, visit: visit, complete: true}
	fd, err := openat2(root, ".", unix.O_RDONLY|unix.O_DIRECTORY, unix.RESOLVE_BENEATH)
	if err != nil {
		return false, err
	}
	err = w.folder(fd, 1)
	return w.complete, err
}

type walker struct {
	ctx      context.Context
	left     int64
	visit    func(dir int, name string, st *unix.Statx_t) error
	complete bool
}

// folder visits what is in a folder, and closes it.
func (w *walker) folder(fd, depth int) error {
	folder := os.NewFile(uintptr(fd), "folder")
	defer folder.Close()
	for {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		names, err := folder.Readdirnames(at)
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if w.left--; w.left < 0 {
				w.complete = false
				return nil
			}
			if err := unlessGone(w.entry(fd, name, depth)); err != nil {
				return err
			}
		}
	}
}

func (w *walker) entry(dir int, name string, depth int) error {
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS, &st)
	if err != nil || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return w.visit(dir, name, &st)
	}
	fd, err := openat2(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_XDEV)
	if errors.Is(err, unix.EXDEV) {
		return nil // a mount
	}
	if err != nil {
		return err
	}
	if err := w.visit(dir, name, &st); err != nil {
		unix.Close(fd)
		return err
	}
	if depth >= deepest {
		w.complete = false
		return unix.Close(fd)
	}
	return w.folder(fd, depth+1)
}

// unlessGone is nil for the error of what was removed, or has become something else, since its name
// was read.
func unlessGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) {
		return nil
	}
	return err
}

// openFolder opens a folder as a place. Links are followed: the path is the host's.
func openFolder(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// races is how often openat2 is called again while names are changed.
const races = 64

// openat2 opens a name below a folder. The caller closes the descriptor.
func openat2(dir int, name string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	for tries := 0; ; {
		fd, err := unix.Openat2(dir, name, &how)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN) && tries < races:
			tries++
		default:
			return fd, err
		}
	}
}

// HasBackstep says whether a path has a component "..".
func HasBackstep(name string) bool {
	return slices.Contains(strings.Split(name, "/"), "..")
}

// IsLocal says whether a path leads nowhere but down: it is relative, not empty, without "..", no
// longer than the kernel takes, and has no zero byte.
func IsLocal(name string) bool {
	return name != "" && !path.IsAbs(name) && !HasBackstep(name) && len(name) < unix.PathMax && strings.IndexByte(name, 0) < 0
}

// nameOf is a path that leads to what a descriptor is open for, whatever its names are.
func nameOf(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
