package wasi

import (
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi/beneath"
)

// Access is what the open file of a standard stream allows.
type Access uint8

const (
	CanRead Access = 1 << iota
	CanWrite
)

// Stdio makes Files of the standard streams: host descriptors, which remain the caller's, or -1 for
// absent ones. The same descriptor given twice is duplicated, because epoll tells files apart by
// it.
func (s *System) Stdio(stdin, stdout, stderr int) (files [3]*File, access [3]Access, err error) {
	given := [3]int{stdin, stdout, stderr}
	for i, fd := range given {
		dup := false
		for _, other := range given[:i] {
			dup = dup || other == fd
		}
		if files[i], access[i], err = s.stream(fd, dup); err != nil {
			for _, f := range files[:i] {
				f.Close()
			}
			return files, access, fmt.Errorf("take standard stream %d: %w", i, err)
		}
	}
	f := files[0]
	f.stdin = true
	s.stdin = f.kind != KindNull && !isNull(f)
	return files, access, nil
}

// stream makes a File of a standard stream.
func (s *System) stream(fd int, dup bool) (*File, Access, error) {
	if fd < 0 {
		return &File{sys: s, host: -1, stdio: true}, CanRead | CanWrite, nil
	}
	var err error
	if dup {
		if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return nil, 0, err
		}
	}
	f, access, err := s.inspect(fd)
	if err != nil {
		if dup {
			unix.Close(fd)
		}
		return nil, 0, err
	}
	f.stdio, f.owned = true, dup
	return f, access, nil
}

// inspect finds out what a standard stream's descriptor is.
func (s *System) inspect(fd int) (*File, Access, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, 0, err
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, 0, err
	}
	var f *File
	if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		if err != nil {
			return nil, 0, err
		}
		f = &s.newSocket(fd, KindSocket, kind).File
	} else {
		f = s.newFile(fd, &st)
	}
	access := CanRead | CanWrite
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		access = CanRead
	case unix.O_WRONLY:
		access = CanWrite
	}
	if flags&unix.O_APPEND != 0 {
		f.flags |= Append
	}
	return f, access, nil
}

// isNull reports whether a file is /dev/null.
func isNull(f *File) bool {
	var st unix.Stat_t
	return f.filetype == TypeCharacterDevice && unix.Fstat(f.host, &st) == nil && uint64(st.Rdev) == unix.Mkdev(1, 3)
}

// Listener makes a File of a listening stream socket, which belongs to it from here on. It is
// non-blocking for the guest too, as in wasmtime: Go's runtime relies on it. A guest that wants to
// wait in Accept clears the flag.
//
// # Errors
//
// ErrInvalidArgument for a descriptor that does not listen. On error the descriptor remains the
// caller's.
func (s *System) Listener(fd int) (*Socket, error) {
	if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
		return nil, fmt.Errorf("descriptor %d does not listen: %w", fd, errdefs.ErrInvalidArgument)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	setNoDelay(fd)
	l := s.newSocket(fd, KindListener, unix.SOCK_STREAM)
	l.owned, l.flags = true, Nonblock
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[l] = true
	return l, nil
}

// Preopen is a directory that the guest finds open when it starts.
type Preopen struct {
	FD       int    // host directory, opened with O_PATH or O_RDONLY|O_DIRECTORY
	Name     string // the guest's name for it, "/" for instance
	ReadOnly bool   // refuse with EROFS whatever would change it, beside the kernel's own read-only mounts
}

// Preopen makes a File of a directory. Its descriptor remains the caller's.
//
// # Errors
//
// ErrInvalidArgument for a descriptor that is no directory.
func (s *System) Preopen(p Preopen) (*Dir, error) {
	// What was given may be a mere O_PATH descriptor, which cannot be listed or synced.
	own, err := unix.Openat(p.FD, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.EACCES {
		own, err = unix.Openat(p.FD, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open directory: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	d := &Dir{
		File: File{sys: s, host: own, kind: KindDirectory, filetype: TypeDirectory, owned: true, readOnly: p.ReadOnly},
		top:  true, root: p.Name == "/",
	}
	d.dir = d
	if !s.Fallbacks.Walk {
		s.Fallbacks.Walk = !beneath.HasOpenat2(own)
	}
	return d, nil
}
