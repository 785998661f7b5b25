package wasip1

import (
	"strings"

	"golang.org/x/sys/unix"
)

// walker resolves a path one component at a time, for kernels without openat2 (before 5.6) and for the
// functions that need a link's final parent. It is as safe: every step opens one name without following
// it, links are read and put in front of the rest, and ".." goes back to a directory that the walk came
// through and still holds, never to what is above it by now.
type walker struct {
	base  int   // where the walk starts; never closed
	held  []int // directories below it, down to the current one
	clamp bool  // links may be absolute and climb: base is their root
	links int
}

// current is the directory the walk stands in.
func (w *walker) current() int {
	if len(w.held) == 0 {
		return w.base
	}
	return w.held[len(w.held)-1]
}

func (w *walker) up() {
	if n := len(w.held); n > 0 {
		unix.Close(w.held[n-1])
		w.held = w.held[:n-1]
	}
}

func (w *walker) close() {
	for len(w.held) > 0 {
		w.up()
	}
}

// take gives the current directory to the caller, and whether it is the caller's to close.
func (w *walker) take() (int, bool) {
	n := len(w.held)
	if n == 0 {
		return w.base, false
	}
	fd := w.held[n-1]
	w.held = w.held[:n-1]
	w.close()
	return fd, true
}

// resolve walks to the directory of the last component and returns its name, "" for the directory
// itself. A last component that is a link is walked through if follow is set or a slash comes behind it.
// A slash is kept at the end of the name.
func (w *walker) resolve(rest string, follow bool) (string, errno) {
	for {
		rest = strings.TrimLeft(rest, "/")
		name, behind, _ := strings.Cut(rest, "/")
		slash := len(name) < len(rest)
		behind = strings.TrimLeft(behind, "/")
		switch name {
		case "":
			return "", success
		case ".":
			rest = behind
			continue
		case "..":
			if len(w.held) == 0 && !w.clamp {
				return "", eperm
			}
			w.up()
			rest = behind
			continue
		}
		last := behind == ""
		if !last {
			entered, e := w.enter(name)
			if e != success {
				return "", e
			}
			if entered {
				rest = behind
				continue
			}
		}
		link, e := "", einval
		if !last || follow || slash {
			link, e = w.readlink(name)
		}
		switch {
		case e == success:
			if rest, e = w.splice(link, behind, slash); e != success {
				return "", e
			}
		case !last:
			return "", enotdir
		case slash:
			return name + "/", success
		default:
			return name, success
		}
	}
}

// enter goes into a directory, and reports false if the name may be a link.
func (w *walker) enter(name string) (bool, errno) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Openat(w.current(), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return
	})
	switch err {
	case nil:
		w.held = append(w.held, fd)
		return true, success
	case unix.ENOTDIR, unix.ELOOP:
		return false, success
	}
	return false, toErrno(err)
}

// readlink reads a link in the current directory.
func (w *walker) readlink(name string) (string, errno) {
	var buffer [maxPath]byte
	n, err := unix.Readlinkat(w.current(), name, buffer[:])
	if err != nil {
		return "", toErrno(err)
	}
	return string(buffer[:n]), success
}

// splice puts a link's text in front of what comes behind it.
func (w *walker) splice(link, behind string, slash bool) (string, errno) {
	if w.links++; w.links > maxLinks {
		return "", eloop
	}
	if link == "" {
		return "", enoent
	}
	if link[0] == '/' {
		if !w.clamp {
			return "", eperm
		}
		w.close()
	}
	if slash {
		link += "/"
	}
	if len(link)+len(behind) >= maxPath {
		return "", enametoolong
	}
	return link + behind, success
}

// walkOpen is openat2 with RESOLVE_BENEATH, or RESOLVE_IN_ROOT if clamp is set, by steps.
func walkOpen(base int, path string, flags int, mode uint32, clamp bool) (int, errno) {
	w := walker{base: base, clamp: clamp}
	defer w.close()
	follow := flags&unix.O_NOFOLLOW == 0 && flags&(unix.O_CREAT|unix.O_EXCL) != unix.O_CREAT|unix.O_EXCL
	rest := path
	for {
		name, e := w.resolve(rest, follow)
		if e != success {
			return -1, e
		}
		last := flags | unix.O_NOFOLLOW
		if bare := strings.TrimSuffix(name, "/"); bare != name {
			// The slash itself must not reach the kernel: it would follow a link that took
			// the name's place.
			if name = bare; flags&unix.O_CREAT != 0 {
				return -1, eisdir
			}
			last |= unix.O_DIRECTORY
		}
		if name == "" {
			name = "."
		}
		if flags&unix.O_CREAT == 0 {
			mode = 0
		}
		var fd int
		err := retry(func() (err error) { fd, err = unix.Openat(w.current(), name, last, mode); return })
		if err == nil {
			return fd, success
		}
		if err != unix.ELOOP || !follow {
			return -1, toErrno(err)
		}
		// A link took the name's place after resolve had looked.
		if w.links++; w.links > maxLinks {
			return -1, eloop
		}
		rest = name
	}
}
