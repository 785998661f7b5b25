package beneath

import (
	"cmp"
	"strings"

	"golang.org/x/sys/unix"
)

// walker resolves a path one component at a time, for kernels without openat2 (before 5.6) and for
// Target, which needs a link's final parent. It is as safe: every step opens one name without
// following it, links are read and put in front of the rest, and ".." goes back to a directory that
// the walk came through and still holds, never to what is above it by now.
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
// itself. A last component that is a link is walked through if follow is set or a slash comes
// behind it. A slash is kept at the end of the name.
func (w *walker) resolve(rest string, follow bool) (string, error) {
	for {
		rest = strings.TrimLeft(rest, "/")
		name, behind, _ := strings.Cut(rest, "/")
		slash := len(name) < len(rest)
		behind = strings.TrimLeft(behind, "/")
		switch name {
		case "":
			return "", nil
		case ".":
			rest = behind
			continue
		case "..":
			if len(w.held) == 0 && !w.clamp {
				return "", unix.EPERM
			}
			w.up()
			rest = behind
			continue
		}
		last := behind == ""
		if !last {
			entered, err := w.enter(name)
			if err != nil {
				return "", err
			}
			if entered {
				rest = behind
				continue
			}
		}
		link, err := "", error(unix.EINVAL)
		if !last || follow || slash {
			link, err = w.readlink(name)
		}
		switch {
		case err == nil:
			if rest, err = w.splice(link, behind, slash); err != nil {
				return "", err
			}
		case !last:
			return "", unix.ENOTDIR
		case slash:
			return name + "/", nil
		default:
			return name, nil
		}
	}
}

// enter enters a directory, and reports false if the name may be a link.
func (w *walker) enter(name string) (bool, error) {
	fd, err := openat(w.current(), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
		w.held = append(w.held, fd)
		return true, nil
	case unix.ENOTDIR, unix.ELOOP:
		return false, nil
	}
	return false, err
}

// readlink reads a link in the current directory.
func (w *walker) readlink(name string) (string, error) {
	var buffer [MaxPath]byte
	n, err := unix.Readlinkat(w.current(), name, buffer[:])
	if err != nil {
		return "", err
	}
	return string(buffer[:n]), nil
}

// splice puts a link's text in front of what comes behind it.
func (w *walker) splice(link, behind string, slash bool) (string, error) {
	if w.links++; w.links > maxLinks {
		return "", unix.ELOOP
	}
	if link == "" {
		return "", unix.ENOENT
	}
	if link[0] == '/' {
		if !w.clamp {
			return "", unix.EPERM
		}
		w.close()
	}
	if slash {
		link += "/"
	}
	if len(link)+len(behind) >= MaxPath {
		return "", unix.ENAMETOOLONG
	}
	return link + behind, nil
}

// walkOpen is openat2 with RESOLVE_BENEATH, or RESOLVE_IN_ROOT if clamp is set, by steps.
func walkOpen(base int, path string, flags int, mode uint32, clamp bool) (int, error) {
	w := walker{base: base, clamp: clamp}
	defer w.close()
	follow := flags&unix.O_NOFOLLOW == 0 && flags&(unix.O_CREAT|unix.O_EXCL) != unix.O_CREAT|unix.O_EXCL
	rest := path
	for {
		name, err := w.resolve(rest, follow)
		if err != nil {
			return -1, err
		}
		last := flags | unix.O_NOFOLLOW
		if bare := strings.TrimSuffix(name, "/"); bare != name {
			// The slash itself must not reach the kernel: it would follow a link that took
			// the name's place.
			if name = bare; flags&unix.O_CREAT != 0 {
				return -1, unix.EISDIR
			}
			last |= unix.O_DIRECTORY
		}
		name = cmp.Or(name, ".")
		if flags&unix.O_CREAT == 0 {
			mode = 0
		}
		fd, err := openat(w.current(), name, last, mode)
		if err == nil {
			return fd, nil
		}
		if err != unix.ELOOP || !follow {
			return -1, err
		}
		// A link took the name's place after resolve had looked.
		if w.links++; w.links > maxLinks {
			return -1, unix.ELOOP
		}
		rest = name
	}
}

// openat repeats openat(2) when a signal of the Go runtime interrupted it.
func openat(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
