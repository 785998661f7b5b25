// Package beneath opens paths that lead nowhere except beneath a directory, whatever others rename
// or link meanwhile. The kernel resolves them (openat2). On kernels without openat2, a walk does it
// step by step and never follows a link by name.
//
// Names are bytes, as in Linux, not necessarily UTF-8. A path or link that leaves its directory is
// EPERM. All errors are of type unix.Errno.
package beneath

import (
	"cmp"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits of a path, the kernel's own.
const (
	MaxPath  = 4096
	maxLinks = 40
)

// maxRaces is how often a resolution starts again because someone renames directories under it.
const maxRaces = 64

// Dir is a directory that paths start from.
type Dir struct {
	FD   int  // host descriptor
	Root bool // links mean what they mean in a container's "/": absolute ones start at FD, ".." above it stays there
	Walk bool // resolve without openat2
}

// HasOpenat2 reports whether the kernel has openat2. fd is any directory.
func HasOpenat2(fd int) bool {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}
	probe, err := unix.Openat2(fd, ".", &how)
	if err != nil {
		return false
	}
	unix.Close(probe)
	return true
}

// CheckPath refuses what no path of WASI can be: the empty one, an absolute one, one with a zero
// byte in it.
func CheckPath(path string) error {
	switch {
	case path == "":
		return unix.ENOENT
	case len(path) >= MaxPath:
		return unix.ENAMETOOLONG
	case strings.IndexByte(path, 0) >= 0:
		return unix.EINVAL
	case path[0] == '/':
		return unix.EPERM
	}
	return nil
}

// IsName reports whether a path is a single component that leads nowhere else.
func IsName(path string) bool {
	return CheckPath(path) == nil && path != "." && path != ".." && strings.IndexByte(path, '/') < 0
}

// staysBelow reports whether a path, read as plain text, never climbs above where it starts.
func staysBelow(path string) bool {
	depth := 0
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return false
			}
		default:
			depth++
		}
	}
	return true
}

// clamps reports whether links on this path may be absolute and climb.
func (d Dir) clamps(path string) bool { return d.Root && staysBelow(path) }

// Open opens a path beneath the directory with the flags of open(2) and returns a host descriptor,
// which the caller closes. The kernel resolves it, so that no other process can slip a link or a
// rename between a check and its use.
func (d Dir) Open(path string, flags int, mode uint32) (int, error) {
	if err := CheckPath(path); err != nil {
		return -1, err
	}
	flags |= unix.O_CLOEXEC | unix.O_LARGEFILE
	clamp := d.clamps(path)
	if d.Walk {
		return walkOpen(d.FD, path, flags, mode, clamp)
	}
	how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode)
	}
	for races := 0; races < maxRaces; {
		fd, err := unix.Openat2(d.FD, path, &how)
		switch err {
		case nil:
			return fd, nil
		case unix.EXDEV:
			if !clamp || how.Resolve&unix.RESOLVE_IN_ROOT != 0 {
				return -1, unix.EPERM
			}
			how.Resolve = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
		case unix.EAGAIN:
			races++
		case unix.EINTR:
		default:
			return -1, err
		}
	}
	return walkOpen(d.FD, path, flags, mode, clamp)
}

// Place is a name in a directory, for system calls that work on names and do not follow links.
type Place struct {
	Dir   int    // host descriptor
	Name  string // last component, "." for the directory itself
	Slash string // "/" if the path ended with slashes
	owned bool
}

// Close releases the directory if Parent or Target opened it.
func (p Place) Close() {
	if p.owned {
		unix.Close(p.Dir)
	}
}

// Parent resolves everything except the last component of a path. The name that is left never leads
// anywhere by itself: it is used with calls that do not follow links. The caller closes the place.
func (d Dir) Parent(path string) (Place, error) {
	if err := CheckPath(path); err != nil {
		return Place{}, err
	}
	trimmed := strings.TrimRight(path, "/")
	slash := ""
	if trimmed != path {
		slash = "/"
	}
	above, name := ".", trimmed
	if i := strings.LastIndexByte(trimmed, '/'); i >= 0 {
		above, name = trimmed[:i+1], trimmed[i+1:]
	}
	if name == "." || name == ".." {
		above, name = trimmed, "."
	}
	if above == "." {
		return Place{Dir: d.FD, Name: name, Slash: slash}, nil
	}
	fd, err := d.Open(above, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return Place{}, err
	}
	return Place{Dir: fd, Name: name, Slash: slash, owned: true}, nil
}

// Target is Parent for a path whose last component may be a symbolic link that is to be followed.
func (d Dir) Target(path string) (Place, error) {
	if err := CheckPath(path); err != nil {
		return Place{}, err
	}
	w := walker{base: d.FD, clamp: d.clamps(path)}
	name, err := w.resolve(path, true)
	if err != nil {
		w.close()
		return Place{}, err
	}
	at := Place{Name: strings.TrimSuffix(name, "/")}
	if at.Name != name {
		at.Slash = "/"
	}
	at.Name = cmp.Or(at.Name, ".")
	at.Dir, at.owned = w.take()
	return at, nil
}
