package desired

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/pods/manifest"
)

// mostFiles is how many manifest files a folder may hold.
const mostFiles = 10000

// manifestName says whether a file of this name is read.
func manifestName(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// stamp tells whether a file may have changed since it was read.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
}

// newest is when the file was last written, renamed or linked, in nanoseconds of the wall clock.
func (s stamp) newest() int64 { return max(s.mtime.Nano(), s.ctime.Nano()) }

// directory is an open folder. It is open only while it is listed or one of its files is read, so
// that a disk can be unmounted.
type directory struct {
	*os.File
	dev, ino uint64
}

func openDirectory(path string) (*directory, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	d := &directory{File: os.NewFile(uintptr(fd), path)}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "stat", Path: path, Err: err}, d.Close())
	}
	d.dev, d.ino = uint64(st.Dev), st.Ino
	return d, nil
}

func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

// manifests are the names in the folder that are manifests' names, in no order; most bounds how many.
func (d *directory) manifests(most int) ([]string, error) {
	var out []string
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			if manifestName(name) {
				out = append(out, name)
			}
		}
		if len(out) > most {
			return nil, fmt.Errorf("list %q: it holds more than %d manifests", d.Name(), most)
		}
		if len(names) == 0 || err != nil {
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("list %q: %w", d.Name(), err)
			}
			return out, nil
		}
	}
}

// presence is what a name of the folder stands for.
type presence int

const (
	absent  presence = iota // nothing, or nothing that is read: a folder, a device, a pipe, a socket
	dangles                 // a link that leads nowhere
	unknown                 // the file system does not say
	present                 // a file, or a link to one
)

// look says what a name stands for. The error is why it is unknown.
func (d *directory) look(name string) (presence, stamp, error) {
	var st unix.Stat_t
	switch err := unix.Fstatat(int(d.Fd()), name, &st, 0); err {
	case nil:
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return absent, stamp{}, nil
		}
		return present, stampOf(&st), nil
	case unix.ENOENT, unix.ELOOP, unix.ENOTDIR, unix.ENAMETOOLONG:
		if unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return dangles, stamp{}, nil
		}
		return absent, stamp{}, nil
	default:
		return unknown, stamp{}, &fs.PathError{Op: "stat", Path: filepath.Join(d.Name(), name), Err: err}
	}
}

// errWriting is the error for a file that is open for writing, or was written while it was read.
var errWriting = errors.New("is being written")

// read reads a file of the folder. What it returns was the whole file at one time, as far as the
// file system can tell.
//
// # Errors
//
// errWriting; of class ErrInvalidArgument for what is no regular file, or longer than
// manifest.MaxFile; else those of the file system.
func (d *directory) read(name string) ([]byte, stamp, error) {
	path := filepath.Join(d.Name(), name)
	f, err := regular.Open(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
	if err != nil {
		if bad := (*fs.PathError)(nil); errors.As(err, &bad) {
			bad.Path = path
		}
		return nil, stamp{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, stamp{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	before := stampOf(&st)
	if before.size > manifest.MaxFile {
		return nil, before, fmt.Errorf("is longer than %d bytes: %w", manifest.MaxFile, errdefs.ErrInvalidArgument)
	}
	if err := lease(int(f.Fd())); err != nil {
		return nil, stamp{}, err
	}
	data, err := regular.ReadAll(f, path, manifest.MaxFile)
	if err != nil {
		return nil, before, err
	}
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, stamp{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if stampOf(&st) != before {
		return nil, stamp{}, errWriting
	}
	return data, before, nil
}

// lease keeps a file from being opened for writing until the descriptor is closed: who tries to
// waits for that. A file that is open for writing gets none: errWriting. File systems without
// leases are no error.
func lease(fd int) error {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err == unix.EAGAIN {
		return errWriting
	}
	return nil
}
