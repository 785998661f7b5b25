package wasi

import (
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi/beneath"
)

// Dir is a directory of the guest. Paths that its methods take start from it and never leave it.
type Dir struct {
	File
	top     bool // given at the start: what lies above it is not the guest's to know
	root    bool // the guest's "/": absolute symbolic links lead back into it
	listing Listing
}

// paths resolves paths from this directory.
func (d *Dir) paths() beneath.Dir {
	return beneath.Dir{FD: d.host, Root: d.root, Walk: d.sys.Fallbacks.Walk}
}

// alter runs a call that changes a name in the directory.
func (d *Dir) alter(path string, call func(beneath.Place) error) error {
	if d.readOnly {
		return unix.EROFS
	}
	at, err := d.paths().Parent(path)
	if err != nil {
		return err
	}
	defer at.Close()
	return call(at)
}

// Mkdir makes a directory.
func (d *Dir) Mkdir(path string) error {
	return d.alter(path, func(at beneath.Place) error { return unix.Mkdirat(at.Dir, at.Name, 0o777) })
}

// Rmdir removes an empty directory. A link with a slash behind it that leads out of this directory is
// refused as such (EPERM), and not because it is none.
func (d *Dir) Rmdir(path string) error {
	return d.alter(path, func(at beneath.Place) error {
		err := unix.Unlinkat(at.Dir, at.Name, unix.AT_REMOVEDIR)
		if err == unix.ENOTDIR && at.Slash != "" {
			var st unix.Stat_t
			if d.StatAt(path, true, &st) == unix.EPERM {
				return unix.EPERM
			}
		}
		return err
	})
}

// Unlink removes what is not a directory.
func (d *Dir) Unlink(path string) error {
	return d.alter(path, func(at beneath.Place) error { return unix.Unlinkat(at.Dir, at.Name+at.Slash, 0) })
}

// Symlink makes a symbolic link. It refuses absolute texts (EPERM): WASI has no absolute paths.
func (d *Dir) Symlink(text, path string) error {
	if err := beneath.CheckPath(text); err != nil {
		return err
	}
	return d.alter(path, func(at beneath.Place) error { return unix.Symlinkat(text, at.Dir, at.Name+at.Slash) })
}

// Rename moves a name from this directory into another.
func (d *Dir) Rename(path string, into *Dir, newPath string) error {
	return d.alter(path, func(from beneath.Place) error {
		return into.alter(newPath, func(to beneath.Place) error {
			return unix.Renameat(from.Dir, from.Name+from.Slash, to.Dir, to.Name+to.Slash)
		})
	})
}

// Link gives a file in this directory another name. follow gives it to what a symbolic link leads
// to.
func (d *Dir) Link(path string, follow bool, into *Dir, newPath string) error {
	from, err := d.linkSource(path, follow)
	if err != nil {
		return err
	}
	defer from.Close()
	return into.alter(newPath, func(to beneath.Place) error {
		return unix.Linkat(from.Dir, from.Name, to.Dir, to.Name+to.Slash, 0)
	})
}

// linkSource resolves what is to get another name. Linux follows a link with a slash behind it
// whatever the flags say, so such a path is looked up first: it must be a directory, and has no
// hard links.
func (d *Dir) linkSource(path string, follow bool) (beneath.Place, error) {
	at, err := d.place(path, follow)
	if err != nil || at.Slash == "" {
		return at, err
	}
	at.Close()
	if err := d.mustBeDir(path); err != nil {
		return beneath.Place{}, err
	}
	return beneath.Place{}, unix.EPERM
}

// place resolves a path to a name; follow resolves a link in its last component too.
func (d *Dir) place(path string, follow bool) (beneath.Place, error) {
	if follow {
		return d.paths().Target(path)
	}
	return d.paths().Parent(path)
}

// mustBeDir is the error of opening a path as a directory.
func (d *Dir) mustBeDir(path string) error {
	fd, err := d.paths().Open(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	unix.Close(fd)
	return nil
}

// Readlink copies as much of a link's text as there is room for and returns its length.
func (d *Dir) Readlink(path string, out []byte) (int, error) {
	at, err := d.paths().Parent(path)
	if err != nil {
		return 0, err
	}
	defer at.Close()
	if at.Slash != "" { // whatever it is, it is a directory or an error
		if err := d.mustBeDir(path); err != nil {
			return 0, err
		}
		return 0, unix.EINVAL
	}
	var buffer [beneath.MaxPath]byte
	n, err := unix.Readlinkat(at.Dir, at.Name, buffer[:])
	if err != nil {
		return 0, err
	}
	return copy(out, buffer[:n]), nil
}

// StatAt fills in st. It is one system call for a name directly in the directory that is no link to
// follow; the rest is done through a descriptor.
func (d *Dir) StatAt(path string, follow bool, st *unix.Stat_t) error {
	if beneath.IsName(path) {
		err := unix.Fstatat(d.host, path, st, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil || !follow || st.Mode&unix.S_IFMT != unix.S_IFLNK {
			return err
		}
	}
	fd, err := d.openPath(path, follow)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fstat(fd, st)
}

// openPath opens a path as a mere name, without access to what it names.
func (d *Dir) openPath(path string, follow bool) (int, error) {
	if follow {
		return d.paths().Open(path, unix.O_PATH, 0)
	}
	return d.paths().Open(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
}

// SetTimesAt is SetTimes of what a path names.
func (d *Dir) SetTimesAt(path string, follow bool, times *[2]unix.Timespec) error {
	if d.readOnly {
		return unix.EROFS
	}
	if d.sys.Fallbacks.TimesByName {
		return d.setTimesByName(path, follow, times)
	}
	fd, err := d.openPath(path, follow)
	if err != nil {
		return err
	}
	err = unix.UtimesNanoAt(fd, "", times[:], unix.AT_EMPTY_PATH)
	unix.Close(fd)
	if err != unix.EINVAL {
		return err
	}
	return d.setTimesByName(path, follow, times)
}

// setTimesByName is for kernels whose utimensat does not take an empty path.
func (d *Dir) setTimesByName(path string, follow bool, times *[2]unix.Timespec) error {
	at, err := d.place(path, follow)
	if err != nil {
		return err
	}
	defer at.Close()
	return unix.UtimesNanoAt(at.Dir, at.Name, times[:], unix.AT_SYMLINK_NOFOLLOW)
}
