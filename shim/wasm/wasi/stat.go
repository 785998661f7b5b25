package wasi

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// TypeOf is the type of the file that st describes. Every socket is said to be a stream; a File
// knows better.
func TypeOf(st *unix.Stat_t) Type { return typeOf(uint32(st.Mode)) }

func typeOf(mode uint32) Type {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return TypeRegularFile
	case unix.S_IFDIR:
		return TypeDirectory
	case unix.S_IFLNK:
		return TypeSymbolicLink
	case unix.S_IFCHR:
		return TypeCharacterDevice
	case unix.S_IFBLK:
		return TypeBlockDevice
	case unix.S_IFSOCK:
		return TypeSocketStream
	case unix.S_IFIFO:
		return TypeFIFO
	}
	return TypeUnknown
}

// Stat fills in st; it stays empty for KindNull.
func (f *File) Stat(st *unix.Stat_t) error {
	if f.kind == KindNull {
		return nil
	}
	return unix.Fstat(f.host, st)
}

// SetSize cuts the file off or lengthens it.
func (f *File) SetSize(size int64) error {
	return retry(func() error { return unix.Ftruncate(f.host, size) })
}

// SetTimes sets the times of access and modification; they may be UTIME_NOW and UTIME_OMIT.
func (f *File) SetTimes(times *[2]unix.Timespec) error {
	if f.readOnly {
		return unix.EROFS
	}
	// A null path makes utimensat act on the descriptor itself.
	_, _, err := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(f.host), 0, uintptr(unsafe.Pointer(&times[0])), 0, 0, 0)
	return result(err)
}
