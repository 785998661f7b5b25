package wasip1

import (
	"math"
	"unsafe"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

// modeType is the specification's type of a file with this mode. A pipe has none. Sockets are told
// apart by socketType.
func modeType(mode uint32) uint8 {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return typeRegularFile
	case unix.S_IFDIR:
		return typeDirectory
	case unix.S_IFLNK:
		return typeSymbolicLink
	case unix.S_IFCHR:
		return typeCharacterDevice
	case unix.S_IFBLK:
		return typeBlockDevice
	case unix.S_IFSOCK:
		return typeSocketStream
	}
	return typeUnknown
}

// nanoseconds is a time since 1970; what lies before that, or beyond the year 2554, is cut off.
func nanoseconds(t unix.Timespec) uint64 {
	seconds := int64(t.Sec)
	if seconds < 0 {
		return 0
	}
	if uint64(seconds) > math.MaxUint64/1_000_000_000-1 {
		return math.MaxUint64
	}
	return uint64(seconds)*1e9 + uint64(t.Nsec)
}

// putFilestat writes a filestat record.
func putFilestat(out []byte, st *unix.Stat_t, filetype uint8) {
	clear(out)
	put64(out, uint64(st.Dev))
	put64(out[8:], uint64(st.Ino))
	out[16] = filetype
	put64(out[24:], uint64(st.Nlink))
	put64(out[32:], uint64(st.Size))
	put64(out[40:], nanoseconds(st.Atim))
	put64(out[48:], nanoseconds(st.Mtim))
	put64(out[56:], nanoseconds(st.Ctim))
}

func fdFilestatGet(h *Host, mem api.Memory, p []uint64) errno {
	f, e := h.get(p[0], rightFdFilestatGet)
	if e != success {
		return e
	}
	out, e := record(mem, p[1], sizeFilestat)
	if e != success {
		return e
	}
	var st unix.Stat_t
	if f.kind != kindNull {
		if err := unix.Fstat(f.host, &st); err != nil {
			return toErrno(err)
		}
	}
	putFilestat(out, &st, f.filetype)
	return success
}

func fdFilestatSetSize(h *Host, _ api.Memory, p []uint64) errno {
	f, e := h.get(p[0], rightFdFilestatSetSize)
	if e != success {
		return e
	}
	if p[1] > math.MaxInt64 {
		return einval
	}
	return toErrno(retry(func() error { return unix.Ftruncate(f.host, int64(p[1])) }))
}

func fdFilestatSetTimes(h *Host, _ api.Memory, p []uint64) errno {
	f, e := h.get(p[0], rightFdFilestatSetTimes)
	if e != success {
		return e
	}
	times, e := timespecs(p[1], p[2], p[3])
	if e != success {
		return e
	}
	if f.readOnly {
		return erofs
	}
	// A null path makes utimensat act on the descriptor itself.
	_, _, err := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(f.host), 0, uintptr(unsafe.Pointer(&times[0])), 0, 0, 0)
	return toErrno(err)
}

// timespecs reads the arguments of the set_times functions.
func timespecs(access, modify, flags uint64) ([2]unix.Timespec, errno) {
	var times [2]unix.Timespec
	set := uint16(flags)
	both := func(a, b uint16) bool { return set&a != 0 && set&b != 0 }
	if uint32(flags)&^uint32(timesAll) != 0 || both(timeAccess, timeAccessNow) || both(timeModify, timeModifyNow) {
		return times, einval
	}
	fill := func(t *unix.Timespec, value uint64, exact, now uint16) errno {
		switch {
		case set&exact != 0:
			if value > math.MaxInt64 {
				return eoverflow
			}
			*t = unix.NsecToTimespec(int64(value))
			if int64(t.Sec) != int64(value/1e9) {
				return eoverflow // 32-bit kernels' seconds
			}
		case set&now != 0:
			t.Nsec = unix.UTIME_NOW
		default:
			t.Nsec = unix.UTIME_OMIT
		}
		return success
	}
	if e := fill(&times[0], access, timeAccess, timeAccessNow); e != success {
		return times, e
	}
	return times, fill(&times[1], modify, timeModify, timeModifyNow)
}
