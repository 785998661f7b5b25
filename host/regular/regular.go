// Package regular opens and reads files that others name or write. Anything other than a regular
// file is refused before it is opened, so that no pipe, device or socket can block or change
// anything, and reads are bounded.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Open opens a file of the host for reading. Links are followed.
//
// # Errors
//
// ErrInvalidArgument if it is not a regular file; otherwise those of the file system.
func Open(name string) (*os.File, error) {
	return open(unix.AT_FDCWD, name, name, &unix.OpenHow{})
}

// OpenIn opens a file of the tree at root for reading. Links are followed as by a process with this
// root: none leads out of it.
//
// # Errors
//
// Those of Open.
func OpenIn(root, name string) (*os.File, error) {
	dir, err := openRoot(root)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return openAt(dir, name)
}

// First opens the first of these files that exists in the tree at root, as OpenIn does.
//
// # Errors
//
// ErrNotFound if none of them is a regular file; otherwise those of the file system.
func First(root string, names []string) (*os.File, error) {
	dir, err := openRoot(root)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	for _, name := range names {
		if strings.ContainsRune(name, 0) { // which no file's name holds
			continue
		}
		f, err := openAt(dir, name)
		if !leadsNowhere(err) {
			return f, err
		}
	}
	return nil, fmt.Errorf("no such file: %w", errdefs.ErrNotFound)
}

// leadsNowhere says of an error of openAt that there is no regular file by that name.
func leadsNowhere(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.ENAMETOOLONG) || errdefs.IsInvalidArgument(err)
}

func openRoot(root string) (int, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	return dir, nil
}

func openAt(root int, name string) (*os.File, error) {
	return open(root, path.Clean("/"+name), name, &unix.OpenHow{Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
}

// open checks the type of the file before it opens it: opening a pipe waits, and opening a device
// may do anything.
func open(dir int, at, name string, how *unix.OpenHow) (*os.File, error) {
	how.Flags = unix.O_PATH | unix.O_CLOEXEC
	found, err := openat2(dir, at, how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(found)
	var st unix.Stat_t
	if err := unix.Fstat(found, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("is not a regular file: %w", errdefs.ErrInvalidArgument)}
	}
	// Without O_NONBLOCK, open waits for the holder of a lease.
	fd, err := retry(func() (int, error) {
		return unix.Open("/proc/self/fd/"+strconv.Itoa(found), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openat2 repeats the call after EAGAIN, with which the kernel answers a concurrent rename.
func openat2(dir int, name string, how *unix.OpenHow) (int, error) {
	for range 16 {
		fd, err := retry(func() (int, error) { return unix.Openat2(dir, name, how) })
		if !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

func retry(call func() (int, error)) (int, error) {
	for {
		if fd, err := call(); !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// Read reads a file of the host that is no longer than limit.
//
// # Errors
//
// Those of Open; ErrInvalidArgument for a longer file.
func Read(name string, limit int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, name, limit)
}

// ReadConfigured is Read for a file that the node's configuration names: a fault of it is not the
// request's.
//
// # Errors
//
// Those of the file system; ErrFailedPrecondition if it is not a regular file, or longer.
func ReadConfigured(name string, limit int64) ([]byte, error) {
	data, err := Read(name, limit)
	if errdefs.IsInvalidArgument(err) {
		text := strings.TrimSuffix(err.Error(), ": "+errdefs.ErrInvalidArgument.Error())
		return nil, fmt.Errorf("%s: %w", text, errdefs.ErrFailedPrecondition)
	}
	return data, err
}

// Tree is the folder of a root filesystem as an fs.FS whose regular files OpenIn opens.
type Tree string

// Open implements fs.FS.
func (t Tree) Open(name string) (fs.File, error) {
	f, err := OpenIn(string(t), name)
	if err != nil {
		return nil, err // not f, which would be a file that is nil
	}
	return f, nil
}

// ReadAll reads r to its end. More than limit bytes are ErrInvalidArgument; name is for that error.
func ReadAll(r io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("is longer than %d bytes: %w", limit, errdefs.ErrInvalidArgument)}
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}
