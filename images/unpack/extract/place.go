package extract

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/containerd/continuity/fs"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// place is the directory that a layer is written into. Names of the layer are
// found in it as if it were the root directory: links lead nowhere else.
type place struct {
	dir     string
	real    string          // dir without links
	root    int             // of dir
	implied map[string]bool // directories that no entry describes, from dir on: "/a/b"

	name string // of the directory that was last used, which the next entry is mostly in too
	last int    // -1: none
}

const directory = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC

func openPlace(dir string) (place, error) {
	root, err := unix.Open(dir, directory|unix.O_NOFOLLOW, 0)
	if err != nil {
		return place{}, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	real, err := os.Readlink(nameOf(root))
	if err != nil {
		unix.Close(root)
		return place{}, err
	}
	return place{dir: dir, real: real, root: root, implied: map[string]bool{}, last: -1}, nil
}

func (p *place) close() {
	p.forget()
	unix.Close(p.root)
}

// forget makes the next name be looked up anew: the way to it may have changed.
func (p *place) forget() {
	if p.last >= 0 {
		unix.Close(p.last)
		p.last = -1
	}
}

// within returns a directory of the layer, which is made if it is not there. The descriptor is good
// until the next call. The name is clean and starts with a slash.
func (p *place) within(name string) (int, error) {
	if name == "/" {
		return p.root, nil
	}
	if p.last >= 0 && p.name == name {
		return p.last, nil
	}
	fd, err := p.lookup(name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		fd, err = p.make(name)
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	p.forget()
	p.name, p.last = name, fd
	return fd, nil
}

// lookup opens a directory that is there.
func (p *place) lookup(name string) (int, error) {
	how := &unix.OpenHow{Flags: directory, Resolve: unix.RESOLVE_IN_ROOT}
	for {
		fd, err := unix.Openat2(p.root, name, how)
		// EAGAIN is for names with "..", whose way was renamed meanwhile, by whomever.
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// make makes a directory with all that lead to it, also where a link of the
// layer leads to what only the layers below have.
func (p *place) make(name string) (int, error) {
	real, err := fs.RootPath(p.dir, name)
	if err != nil {
		return -1, err
	}
	real = strings.TrimPrefix(real, p.dir)
	at := "/"
	for part := range strings.SplitSeq(strings.Trim(real, "/"), "/") {
		above, err := p.lookup(at)
		if err != nil {
			return -1, err
		}
		err = unix.Mkdirat(above, part, 0o755)
		at = path.Join(at, part)
		if err == nil {
			p.implied[at] = true
			err = unix.Fchmodat(above, part, 0o755, 0) // whatever the umask is
		}
		unix.Close(above)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, err
		}
	}
	return p.lookup(real)
}

// find is where an entry goes: a directory and the name in it.
func (p *place) find(name string) (parent int, base string, err error) {
	parent, err = p.within(path.Dir(name))
	return parent, path.Base(name), err
}

// describes notes that an entry says what a directory is like.
func (p *place) describes(parent int, base string) error {
	if len(p.implied) == 0 {
		return nil
	}
	above, err := os.Readlink(nameOf(parent))
	if err != nil {
		return err
	}
	delete(p.implied, strings.TrimPrefix(filepath.Join(above, base), p.real))
	return nil
}

// nameOf is a name for what a descriptor is of, for calls that take no descriptor.
func nameOf(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func at(parent int, base string) string { return nameOf(parent) + "/" + base }

// stat returns what a name is; ok is false if there is nothing.
func stat(parent int, base string) (st unix.Stat_t, ok bool, err error) {
	err = unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return st, false, nil
	}
	return st, err == nil, err
}

// clear removes what stands in an entry's place. It reports whether that was a whiteout.
func (p *place) clear(parent int, base string) (whiteout bool, err error) {
	st, ok, err := stat(parent, base)
	if !ok || err != nil {
		return false, err
	}
	if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFDIR || kind == unix.S_IFLNK {
		p.name = "" // the way to the folder that was last used may change
	}
	return isWhiteout(st), os.RemoveAll(at(parent, base))
}

func isWhiteout(st unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// invalid is the error for an entry that no disk can hold.
func invalid(name, why string) error {
	return fmt.Errorf("entry %q: %s: %w", name, why, errdefs.ErrInvalidArgument)
}
