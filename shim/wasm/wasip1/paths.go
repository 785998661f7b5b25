package wasip1

import (
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

// directoryAt returns the directory of a path function and the path, if d is writable where change is
// set.
func (h *Host) directoryAt(mem api.Memory, fd, offset, length uint64, need rights, change bool) (*file, string, errno) {
	d, e := h.get(fd, need)
	if e != success {
		return nil, "", e
	}
	path, e := text(mem, offset, length)
	if e != success {
		return nil, "", e
	}
	if change && d.readOnly {
		return nil, "", erofs
	}
	return d, path, success
}

// alter runs a call that changes a name in a directory.
func (h *Host) alter(mem api.Memory, fd, offset, length uint64, need rights, call func(place) error) errno {
	d, path, e := h.directoryAt(mem, fd, offset, length, need, true)
	if e != success {
		return e
	}
	at, e := h.parent(d, path)
	if e != success {
		return e
	}
	defer at.close()
	return toErrno(call(at))
}

func pathCreateDirectory(h *Host, mem api.Memory, p []uint64) errno {
	return h.alter(mem, p[0], p[1], p[2], rightPathCreateDirectory, func(at place) error {
		return unix.Mkdirat(at.dir, at.name, 0o777)
	})
}

func pathRemoveDirectory(h *Host, mem api.Memory, p []uint64) errno {
	return h.alter(mem, p[0], p[1], p[2], rightPathRemoveDirectory, func(at place) error {
		return unix.Unlinkat(at.dir, at.name, unix.AT_REMOVEDIR)
	})
}

func pathUnlinkFile(h *Host, mem api.Memory, p []uint64) errno {
	return h.alter(mem, p[0], p[1], p[2], rightPathUnlinkFile, func(at place) error {
		return unix.Unlinkat(at.dir, at.name+at.slash, 0)
	})
}

// pathSymlink refuses absolute texts: a guest of the specification has no absolute paths.
func pathSymlink(h *Host, mem api.Memory, p []uint64) errno {
	link, e := text(mem, p[0], p[1])
	if e != success {
		return e
	}
	if e := checkPath(link); e != success {
		return e
	}
	return h.alter(mem, p[2], p[3], p[4], rightPathSymlink, func(at place) error {
		return unix.Symlinkat(link, at.dir, at.name+at.slash)
	})
}

func pathRename(h *Host, mem api.Memory, p []uint64) errno {
	d, path, e := h.directoryAt(mem, p[0], p[1], p[2], rightPathRenameSource, true)
	if e != success {
		return e
	}
	from, e := h.parent(d, path)
	if e != success {
		return e
	}
	defer from.close()
	return h.alter(mem, p[3], p[4], p[5], rightPathRenameTarget, func(to place) error {
		return unix.Renameat(from.dir, from.name+from.slash, to.dir, to.name+to.slash)
	})
}

func pathLink(h *Host, mem api.Memory, p []uint64) errno {
	if uint32(p[1])&^lookupFollow != 0 {
		return einval
	}
	d, path, e := h.directoryAt(mem, p[0], p[2], p[3], rightPathLinkSource, false)
	if e != success {
		return e
	}
	from, e := h.linkSource(d, path, uint32(p[1])&lookupFollow != 0)
	if e != success {
		return e
	}
	defer from.close()
	return h.alter(mem, p[4], p[5], p[6], rightPathLinkTarget, func(to place) error {
		return unix.Linkat(from.dir, from.name, to.dir, to.name+to.slash, 0)
	})
}

// linkSource resolves what is to get another name. Linux follows a link with a slash behind it whatever
// the flags say, so such a path is looked up first: it must be a directory, and has no hard links.
func (h *Host) linkSource(d *file, path string, follow bool) (place, errno) {
	var at place
	var e errno
	if follow {
		at, e = h.target(d, path)
	} else {
		at, e = h.parent(d, path)
	}
	if e != success {
		return at, e
	}
	if at.slash != "" {
		at.close()
		fd, e := h.open(d, path, unix.O_PATH|unix.O_DIRECTORY, 0)
		if e != success {
			return place{}, e
		}
		unix.Close(fd)
		return place{}, eperm
	}
	return at, success
}

// pathReadlink gives as much of a link's text as there is room for.
func pathReadlink(h *Host, mem api.Memory, p []uint64) errno {
	d, path, e := h.directoryAt(mem, p[0], p[1], p[2], rightPathReadlink, false)
	if e != success {
		return e
	}
	out, e := record(mem, p[3], int(uint32(p[4])))
	if e != success {
		return e
	}
	result, e := record(mem, p[5], 4)
	if e != success {
		return e
	}
	at, e := h.parent(d, path)
	if e != success {
		return e
	}
	defer at.close()
	if at.slash != "" { // whatever it is, it is a directory or an error
		fd, e := h.open(d, path, unix.O_PATH|unix.O_DIRECTORY, 0)
		if e != success {
			return e
		}
		unix.Close(fd)
		return einval
	}
	var buffer [maxPath]byte
	n, err := unix.Readlinkat(at.dir, at.name, buffer[:])
	if err != nil {
		return toErrno(err)
	}
	put32(result, uint32(copy(out, buffer[:n])))
	return success
}

func pathFilestatGet(h *Host, mem api.Memory, p []uint64) errno {
	d, path, e := h.directoryAt(mem, p[0], p[2], p[3], rightPathFilestatGet, false)
	if e != success {
		return e
	}
	out, e := record(mem, p[4], sizeFilestat)
	if e != success {
		return e
	}
	if uint32(p[1])&^lookupFollow != 0 {
		return einval
	}
	var st unix.Stat_t
	if e := h.stat(d, path, uint32(p[1])&lookupFollow != 0, &st); e != success {
		return e
	}
	putFilestat(out, &st, modeType(uint32(st.Mode)))
	return success
}

// stat is one system call for a name directly in d that is no link to follow; the rest goes through a
// descriptor.
func (h *Host) stat(d *file, path string, follow bool, st *unix.Stat_t) errno {
	if isName(path) {
		err := unix.Fstatat(d.host, path, st, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil || !follow || st.Mode&unix.S_IFMT != unix.S_IFLNK {
			return toErrno(err)
		}
	}
	fd, e := h.open(d, path, pathFlags(follow), 0)
	if e != success {
		return e
	}
	defer unix.Close(fd)
	return toErrno(unix.Fstat(fd, st))
}

// isName reports whether a path is a single component that leads nowhere else.
func isName(path string) bool {
	if checkPath(path) != success || path == "." || path == ".." {
		return false
	}
	for i := range len(path) {
		if path[i] == '/' {
			return false
		}
	}
	return true
}

func pathFlags(follow bool) int {
	if follow {
		return unix.O_PATH
	}
	return unix.O_PATH | unix.O_NOFOLLOW
}

func pathFilestatSetTimes(h *Host, mem api.Memory, p []uint64) errno {
	d, path, e := h.directoryAt(mem, p[0], p[2], p[3], rightPathFilestatSetTimes, true)
	if e != success {
		return e
	}
	if uint32(p[1])&^lookupFollow != 0 {
		return einval
	}
	times, e := timespecs(p[4], p[5], p[6])
	if e != success {
		return e
	}
	follow := uint32(p[1])&lookupFollow != 0
	fd, e := h.open(d, path, pathFlags(follow), 0)
	if e != success {
		return e
	}
	err := unix.UtimesNanoAt(fd, "", times[:], unix.AT_EMPTY_PATH)
	unix.Close(fd)
	if err != unix.EINVAL {
		return toErrno(err)
	}
	return h.setTimesByName(d, path, follow, times)
}

// setTimesByName is for kernels whose utimensat does not take an empty path (before 5.11).
func (h *Host) setTimesByName(d *file, path string, follow bool, times [2]unix.Timespec) errno {
	var at place
	var e errno
	if follow {
		at, e = h.target(d, path)
	} else {
		at, e = h.parent(d, path)
	}
	if e != success {
		return e
	}
	defer at.close()
	return toErrno(unix.UtimesNanoAt(at.dir, at.name, times[:], unix.AT_SYMLINK_NOFOLLOW))
}
