package wasip1

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Limits of a path, the kernel's own.
const (
	maxPath  = 4096
	maxLinks = 40
)

// maxRaces is how often a resolution is begun anew because someone renames directories under it.
const maxRaces = 64

// procfsMagic is the type that statfs gives for procfs.
const procfsMagic = 0x9fa0

// checkPath refuses what no path of the specification can be: the empty one, an absolute one, one with
// a zero byte in it.
func checkPath(path string) errno {
	switch {
	case path == "":
		return enoent
	case len(path) >= maxPath:
		return enametoolong
	case strings.IndexByte(path, 0) >= 0:
		return einval
	case path[0] == '/':
		return eperm
	}
	return success
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

// open opens a path beneath the directory d and returns a host descriptor. The kernel resolves it, so
// that nobody can slip a link or a rename between a check and its use. Leaving d is EPERM. Below the
// preopen "/" symbolic links mean what they mean in a container: absolute ones start at the preopen,
// and ".." above it stays there.
func (h *Host) open(d *file, path string, flags int, mode uint32) (int, errno) {
	if e := checkPath(path); e != success {
		return -1, e
	}
	flags |= unix.O_CLOEXEC | unix.O_LARGEFILE
	clamp := d.root && staysBelow(path)
	if h.walks {
		return walkOpen(d.host, path, flags, mode, clamp)
	}
	how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode)
	}
	for races := 0; races < maxRaces; {
		fd, err := unix.Openat2(d.host, path, &how)
		switch err {
		case nil:
			return fd, success
		case unix.EXDEV:
			if !clamp || how.Resolve&unix.RESOLVE_IN_ROOT != 0 {
				return -1, eperm
			}
			how.Resolve = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
		case unix.EAGAIN:
			races++
		case unix.EINTR:
		default:
			return -1, toErrno(err)
		}
	}
	return walkOpen(d.host, path, flags, mode, clamp)
}

// place is where a function that works on a name in a directory works.
type place struct {
	dir   int    // host descriptor
	name  string // last component, "." for the directory itself
	slash string // "/" if the path ended with slashes
	owned bool
}

func (p place) close() {
	if p.owned {
		unix.Close(p.dir)
	}
}

// parent resolves everything but the last component of a path beneath d. The name that is left never
// leads anywhere by itself: it is used with calls that do not follow links.
func (h *Host) parent(d *file, path string) (place, errno) {
	if e := checkPath(path); e != success {
		return place{}, e
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
		return place{dir: d.host, name: name, slash: slash}, success
	}
	fd, e := h.open(d, above, unix.O_PATH|unix.O_DIRECTORY, 0)
	if e != success {
		return place{}, e
	}
	return place{dir: fd, name: name, slash: slash, owned: true}, success
}

// target is parent for a path whose last component may be a symbolic link that is to be followed.
func (h *Host) target(d *file, path string) (place, errno) {
	if e := checkPath(path); e != success {
		return place{}, e
	}
	w := walker{base: d.host, clamp: d.root && staysBelow(path)}
	name, e := w.resolve(path, true)
	if e != success {
		w.close()
		return place{}, e
	}
	at := place{name: strings.TrimSuffix(name, "/")}
	if at.name != name {
		at.slash = "/"
	}
	if at.name == "" {
		at.name = "."
	}
	at.dir, at.owned = w.take()
	return at, success
}

// guard refuses what must not be opened although it lies beneath a preopen: procfs. It tells about, and
// through files such as mem gives power over, the process the guest runs in, which is not the guest's.
func (h *Host) guard(fd int, dev uint64) errno {
	for _, known := range h.devices {
		if known == dev {
			return success
		}
	}
	var fs unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return toErrno(err)
	}
	if int64(fs.Type) == procfsMagic {
		return eacces
	}
	h.devices = append(h.devices, dev)
	return success
}
