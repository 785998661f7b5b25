package tree

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Group is a group that is to have a tree: the fsGroup of a pod. The zero value is no group.
type Group struct {
	Set bool
	ID  int
}

// What fsGroup adds to modes.
const (
	groupWrites  = 0o660
	groupReads   = 0o440
	groupFolders = unix.S_ISGID | 0o110
)

// Folder is the mode of a folder that the group may write to.
func (g Group) Folder(mode uint32) uint32 {
	if g.Set {
		mode |= groupWrites | groupFolders
	}
	return mode
}

// ReadOnlyFolder is the mode of a folder that the group may read.
func (g Group) ReadOnlyFolder(mode uint32) uint32 {
	if g.Set {
		mode |= groupReads | groupFolders
	}
	return mode
}

// ReadOnlyFile is the mode of a file that the group may read.
func (g Group) ReadOnlyFile(mode uint32) uint32 {
	if g.Set {
		mode |= groupReads
	}
	return mode
}

// Own gives a file to the group, if there is one. Links are not followed.
func (g Group) Own(path string) error {
	if !g.Set {
		return nil
	}
	return os.Lchown(path, -1, g.ID)
}

// Give gives a tree to the group: everything gets its owner group, files are writable for it, and
// folders pass it on. The folder itself is last, so that OnRootMismatch sees whether the work was
// finished. Containers may use the tree meanwhile: links are not followed, mounts are not entered.
//
// # Errors
//
// ErrFailedPrecondition for a tree that is nested too deep; else the context's and those of the
// file system.
func (g Group) Give(ctx context.Context, path string, policy *corev1.PodFSGroupChangePolicy) error {
	if !g.Set {
		return nil
	}
	root, err := openFolder(path)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	if policy != nil && *policy == corev1.FSGroupChangeOnRootMismatch {
		if ok, err := g.has(root); err != nil || ok {
			return err
		}
	}
	complete, err := walk(ctx, root, math.MaxInt64, func(dir int, name string, _ *unix.Statx_t) error {
		return g.giveOne(dir, name)
	})
	if err == nil && !complete {
		err = fmt.Errorf("folders are nested more than %d deep: %w", deepest, errdefs.ErrFailedPrecondition)
	}
	if err == nil {
		err = g.change(root)
	}
	if err != nil {
		return fmt.Errorf("apply fsGroup to %q: %w", path, err)
	}
	return nil
}

// has says whether a folder looks as Give leaves it.
func (g Group) has(fd int) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	want := uint32(groupWrites | groupFolders)
	return int(st.Gid) == g.ID && st.Mode&want == want, nil
}

func (g Group) giveOne(dir int, name string) error {
	fd, err := openat2(dir, name, unix.O_PATH|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_XDEV)
	if err != nil {
		return unlessGone(err)
	}
	defer unix.Close(fd)
	return g.change(fd)
}

// change changes one file. Its other permissions stay, also the bits that chown clears.
func (g Group) change(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	mode := st.Mode&0o7777 | groupWrites
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= groupFolders
	case unix.S_IFLNK:
		mode = st.Mode & 0o7777
	}
	if int(st.Gid) != g.ID {
		if err := unix.Fchownat(fd, "", -1, g.ID, unix.AT_EMPTY_PATH); err != nil {
			return &os.PathError{Op: "chown", Path: nameOf(fd), Err: err}
		}
	} else if mode == st.Mode&0o7777 {
		return nil
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	if err := unix.Chmod(nameOf(fd), mode); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "chmod", Path: nameOf(fd), Err: err}
	}
	return nil
}
