package space

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// A container may nest folders as deep as its disk allows, far beyond the longest path that the
// kernel takes and the most files that a process may have open. What reads or removes them moves
// from folder to folder, a few open at a time.

// deepest is how many folders, each in the other, Remove holds open at once.
const deepest = 64

// Remove removes a file, or a folder with all that is in it, however deep, and follows no links.
// What is not there is no error. Others may remove there at the same time, but none may write.
//
// # Errors
//
// EBUSY at a mount: nothing that is mounted is removed. Of the rest, some may be.
func Remove(path string) error {
	dir, name := filepath.Split(filepath.Clean(path))
	dir = cmp.Or(dir, ".")
	above, err := openFolder(unix.AT_FDCWD, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %q: %w", path, err)
	}
	defer unix.Close(above)
	if err := new(removal).entry(above, name, 0); err != nil {
		return fmt.Errorf("remove %q: %w", path, err)
	}
	return nil
}

// removal is the removal of one folder.
type removal struct {
	top    int // the folder, once it is open
	raised int // folders that were moved into it
}

// entry removes one entry of a folder.
func (r *removal) entry(in int, name string, depth int) error {
	err := unix.Unlinkat(in, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR {
		return err
	}
	err = unix.Unlinkat(in, name, unix.AT_REMOVEDIR) // before it is opened: EBUSY at a mount
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.ENOTEMPTY && err != unix.EEXIST {
		return err
	}
	if depth >= deepest && r.raise(in, name) == nil {
		return nil // it is removed from there
	}
	folder, err := openFolder(in, name)
	if err != nil {
		return unlessGone(err)
	}
	defer unix.Close(folder)
	r.top = cmp.Or(r.top, folder)
	for {
		if err := r.all(folder, depth+1); err != nil {
			return unlessGone(err)
		}
		err := unix.Unlinkat(in, name, unix.AT_REMOVEDIR)
		if err != unix.ENOTEMPTY && err != unix.EEXIST { // another removal has moved a folder to the top
			return unlessGone(err)
		}
	}
}

// raise moves a folder that lies deep to the top.
func (r *removal) raise(in int, name string) error {
	for {
		err := unix.Renameat2(in, name, r.top, ".deep-"+strconv.Itoa(r.raised), unix.RENAME_NOREPLACE)
		if r.raised++; err != unix.EEXIST {
			return err
		}
	}
}

// all removes what is in a folder. It reads that again until there is nothing: a file system may
// pass over entries while others are removed, and deep folders come to the top.
func (r *removal) all(folder, depth int) error {
	for {
		if _, err := unix.Seek(folder, 0, io.SeekStart); err != nil {
			return err
		}
		names, err := list(folder)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			if err := r.entry(folder, name, depth); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
}

// remembered is how many files of several names, and how many folders to be read, a measuring keeps
// in memory at most.
const remembered = 1 << 20

// Use is the room that files take.
type Use struct {
	Bytes, Inodes int64
	// Partial says that a folder had so many folders in it that some were not read: the files take
	// at least this room.
	Partial bool
}

// Used measures what lies at a path, a link as itself, and every file once, also if it has several
// names: of more than a million such files, each name counts as its share. What is mounted below
// the path is not counted. What others write, move or remove meanwhile may be counted or not.
//
// # Errors
//
// fs.ErrNotExist if there is nothing at the path, and the context's.
func Used(ctx context.Context, path string) (Use, error) {
	w := &walk{linked: map[inode]bool{}, left: remembered, names: remembered}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, look, unix.STATX_BASIC_STATS, &st); err != nil {
		return Use{}, &fs.PathError{Op: "measure", Path: path, Err: err}
	}
	w.count(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return w.use, nil
	}
	root, err := openFolder(unix.AT_FDCWD, path)
	if err != nil {
		return Use{}, fmt.Errorf("measure %q: %w", path, err)
	}
	defer unix.Close(root)
	if err := w.all(ctx, root); err != nil {
		return Use{}, fmt.Errorf("measure %q: %w", path, err)
	}
	return w.use, nil
}

// look is how files are looked at: a link as itself.
const look = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT

type inode struct{ dev, ino uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{uint64(st.Dev), st.Ino} }

// walk visits a folder and those below it, one after another.
type walk struct {
	use    Use
	linked map[inode]bool // files of several names that are counted
	left   int            // how many more folders may wait to be read
	names  int            // how many files linked has at most
	levels []level        // from below the root to the folder that is being read
}

// level is a folder on the way to the one that is being read.
type level struct {
	name string
	self inode
	rest []string // folders in it that are not read yet
}

func (w *walk) count(st *unix.Statx_t) {
	bytes := int64(st.Blocks) * 512
	if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
		id := inode{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}
		switch {
		case w.linked[id]:
			return
		case len(w.linked) < w.names:
			w.linked[id] = true
		default:
			w.use.Bytes += bytes / int64(st.Nlink)
			return
		}
	}
	w.use.Inodes++
	w.use.Bytes += bytes
}

// all counts what is below the root.
func (w *walk) all(ctx context.Context, root int) error {
	folder := root
	leave := func() {
		if folder != root {
			unix.Close(folder)
		}
	}
	defer func() { leave() }()
	if err := w.enter(ctx, root, "."); err != nil {
		return err
	}
	for len(w.levels) > 0 {
		here := &w.levels[len(w.levels)-1]
		var next int
		var err error
		if len(here.rest) > 0 {
			name := here.rest[len(here.rest)-1]
			here.rest = here.rest[:len(here.rest)-1]
			w.left++
			next, err = w.down(ctx, folder, name)
		} else if w.levels = w.levels[:len(w.levels)-1]; len(w.levels) > 0 {
			next, err = w.up(root, folder)
		}
		if err != nil {
			return err
		}
		if next != 0 {
			leave()
			folder = next
		}
	}
	return nil
}

// down reads a folder below the one that was read before; 0 if it was removed or has no folder in
// it.
func (w *walk) down(ctx context.Context, from int, name string) (int, error) {
	folder, err := openFolder(from, name)
	if err != nil {
		return 0, unlessGone(err)
	}
	levels := len(w.levels)
	err = w.enter(ctx, folder, name)
	if err != nil || len(w.levels) == levels {
		unix.Close(folder)
		return 0, unlessGone(err)
	}
	return folder, nil
}

// enter reads a folder. It becomes the last of the levels if folders are in it.
func (w *walk) enter(ctx context.Context, folder int, name string) error {
	rest, err := w.read(ctx, folder)
	if err != nil || len(rest) == 0 {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(folder, &st); err != nil {
		return err
	}
	w.levels = append(w.levels, level{name: name, self: inodeOf(&st), rest: rest})
	return nil
}

// up opens the folder that has become the last of the levels. If the one below it was moved
// meanwhile, that is found from the root; levels that are not there any more are left out.
func (w *walk) up(root, from int) (int, error) {
	folder, err := openFolder(from, "..")
	if err == nil {
		if w.isLast(folder) {
			return folder, nil
		}
		unix.Close(folder)
	}
	for length := len(w.levels); ; length = len(w.levels) {
		folder, err := openFolder(root, ".")
		if err != nil {
			return 0, err
		}
		for i, l := range w.levels[1:] {
			next, err := openFolder(folder, l.name)
			unix.Close(folder)
			if err != nil {
				if err := unlessGone(err); err != nil {
					return 0, err
				}
				w.levels = w.levels[:i+1]
				break
			}
			folder = next
		}
		if length == len(w.levels) {
			if w.isLast(folder) || length == 1 {
				return folder, nil
			}
			w.levels = w.levels[:length-1]
		}
		unix.Close(folder)
	}
}

func (w *walk) isLast(folder int) bool {
	var st unix.Stat_t
	return unix.Fstat(folder, &st) == nil && inodeOf(&st) == w.levels[len(w.levels)-1].self
}

// read counts what is in a folder and returns the folders in it.
func (w *walk) read(ctx context.Context, folder int) (folders []string, err error) {
	for ctx.Err() == nil {
		names, err := list(folder)
		if err != nil || len(names) == 0 {
			return folders, err
		}
		for _, name := range names {
			var st unix.Statx_t
			if err := unix.Statx(folder, name, look, unix.STATX_BASIC_STATS, &st); err != nil {
				if err := unlessGone(err); err != nil {
					return nil, err
				}
				continue
			}
			if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
				continue
			}
			w.count(&st)
			switch folder := st.Mode&unix.S_IFMT == unix.S_IFDIR; {
			case folder && w.left > 0:
				w.left--
				folders = append(folders, name)
			case folder:
				w.use.Partial = true
			}
		}
	}
	return nil, ctx.Err()
}

// unlessGone is nil for the error of what was removed, or has become something else, since it was
// listed.
func unlessGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}

// openFolder opens a folder to be listed. That it was is not written to the disk, where it may be:
// trees are measured every few minutes on machines that else write nothing.
func openFolder(in int, name string) (int, error) {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOATIME
	for {
		fd, err := unix.Openat(in, name, flags, 0)
		switch {
		case err == nil:
			return fd, nil
		case err == unix.EPERM && flags&unix.O_NOATIME != 0: // only its owner may say so
			flags &^= unix.O_NOATIME
		case err != unix.EINTR:
			return 0, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// list returns the next names in a folder, none at its end.
func list(folder int) ([]string, error) {
	var room [8192]byte
	for {
		n, err := unix.ReadDirent(folder, room[:])
		if err == unix.EINTR {
			continue
		}
		_, _, names := unix.ParseDirent(room[:max(n, 0)], -1, nil) // without "." and ".."
		if err != nil || n <= 0 || len(names) > 0 {
			return names, err
		}
	}
}
