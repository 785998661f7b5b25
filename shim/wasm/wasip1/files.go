package wasip1

import (
	"math"
	"unsafe"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

func fdRead(h *Host, mem api.Memory, p []uint64) errno {
	return h.vectored(mem, p, rightFdRead, 0, p[3], func(h *Host, f *file, iovs []unix.Iovec, _ int64) (uint32, errno) {
		return h.read(f, iovs)
	})
}

func fdWrite(h *Host, mem api.Memory, p []uint64) errno {
	return h.vectored(mem, p, rightFdWrite, 0, p[3], func(h *Host, f *file, iovs []unix.Iovec, _ int64) (uint32, errno) {
		return h.write(f, iovs)
	})
}

func fdPread(h *Host, mem api.Memory, p []uint64) errno {
	return h.vectored(mem, p, rightFdRead|rightFdSeek, p[3], p[4], func(_ *Host, f *file, iovs []unix.Iovec, offset int64) (uint32, errno) {
		return transferAt(unix.SYS_PREADV, f.host, iovs, offset)
	})
}

func fdPwrite(h *Host, mem api.Memory, p []uint64) errno {
	return h.vectored(mem, p, rightFdWrite|rightFdSeek, p[3], p[4], func(_ *Host, f *file, iovs []unix.Iovec, offset int64) (uint32, errno) {
		return f.writeAt(iovs, offset)
	})
}

// vectored does what all reading and writing has in common: p begins with the descriptor and the list of buffers, and how many
// bytes call has moved goes to result. The calls refer to nothing around them: they are made often.
func (h *Host) vectored(mem api.Memory, p []uint64, needed rights, offset, result uint64, call func(*Host, *file, []unix.Iovec, int64) (uint32, errno)) errno {
	f, e := h.get(p[0], needed)
	if e != success {
		return e
	}
	out, e := record(mem, result, 4)
	if e != success {
		return e
	}
	if offset > math.MaxInt64 {
		return einval
	}
	iovs, e := h.vectors(mem, p[1], p[2])
	if e != success {
		return e
	}
	n, e := call(h, f, iovs, int64(offset))
	h.release()
	put32(out, n)
	return e
}

// writeAt writes at its offset also when the file is in append mode, as POSIX has it. Linux would
// append; the open file is the guest's alone and the guest has one thread, so the mode is lifted for
// the length of the call.
func (f *file) writeAt(iovs []unix.Iovec, offset int64) (uint32, errno) {
	if f.flags&flagAppend != 0 && f.kind == kindFile && !f.stdio {
		if err := setAppend(f.host, false); err != nil {
			return 0, toErrno(err)
		}
		defer setAppend(f.host, true)
	}
	n, e := transferAt(unix.SYS_PWRITEV, f.host, iovs, offset)
	if e == success {
		e = f.settle()
	}
	return n, e
}

// transfer is readv or writev, or their plain forms for one buffer.
func transfer(plain, vector uintptr, fd int, iovs []unix.Iovec) (uint32, errno) {
	if len(iovs) == 0 {
		return 0, success
	}
	for {
		var n uintptr
		var err unix.Errno
		if len(iovs) == 1 {
			n, _, err = unix.Syscall(plain, uintptr(fd), uintptr(unsafe.Pointer(iovs[0].Base)), uintptr(iovs[0].Len))
		} else {
			n, _, err = unix.Syscall(vector, uintptr(fd), uintptr(unsafe.Pointer(&iovs[0])), uintptr(len(iovs)))
		}
		switch err {
		case 0:
			return uint32(n), success
		case unix.EINTR:
		default:
			return 0, toErrno(err)
		}
	}
}

// transferAt is preadv or pwritev.
func transferAt(call uintptr, fd int, iovs []unix.Iovec, offset int64) (uint32, errno) {
	if len(iovs) == 0 {
		return 0, success
	}
	// The kernel takes the offset in two words of its own size; on 64 bits the second counts for nothing.
	low, high := uintptr(offset), uintptr(uint64(offset)>>32)
	for {
		n, _, err := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&iovs[0])), uintptr(len(iovs)), low, high, 0)
		switch err {
		case 0:
			return uint32(n), success
		case unix.EINTR:
		default:
			return 0, toErrno(err)
		}
	}
}

// settle does after a write what synchronous flags promise and the kernel was not asked for at open.
func (f *file) settle() errno {
	switch missing := f.flags & flagsSync &^ f.hostSync; {
	case missing == 0 || f.kind != kindFile:
		return success
	case missing == flagDsync:
		return toErrno(unix.Fdatasync(f.host))
	}
	return toErrno(unix.Fsync(f.host))
}

func fdSeek(h *Host, mem api.Memory, p []uint64) errno {
	need := rightFdSeek
	whence := uint8(p[2])
	if whence == seekCurrent && p[1] == 0 {
		need = rightFdTell
	}
	f, e := h.get(p[0], 0)
	if e != success {
		return e
	}
	if f.base&rightFdSeek == 0 { // seek implies tell
		if e := f.check(need); e != success {
			return e
		}
	}
	if uint32(p[2]) > uint32(seekEnd) {
		return einval
	}
	return seek(f, mem, int64(p[1]), int(whence), p[3])
}

func fdTell(h *Host, mem api.Memory, p []uint64) errno {
	f, e := h.get(p[0], 0)
	if e != success {
		return e
	}
	if f.base&rightFdSeek == 0 {
		if e := f.check(rightFdTell); e != success {
			return e
		}
	}
	return seek(f, mem, 0, int(seekCurrent), p[1])
}

// seek is lseek; the specification numbers the origins as Linux does.
func seek(f *file, mem api.Memory, offset int64, whence int, result uint64) errno {
	out, e := record(mem, result, 8)
	if e != success {
		return e
	}
	position, err := unix.Seek(f.host, offset, whence)
	if err != nil {
		return toErrno(err)
	}
	put64(out, uint64(position))
	return success
}

// advices maps the specification's numbers to those of posix_fadvise.
var advices = [...]int{
	unix.FADV_NORMAL, unix.FADV_SEQUENTIAL, unix.FADV_RANDOM, unix.FADV_WILLNEED, unix.FADV_DONTNEED, unix.FADV_NOREUSE,
}

func fdAdvise(h *Host, _ api.Memory, p []uint64) errno {
	f, e := h.get(p[0], rightFdAdvise)
	if e != success {
		return e
	}
	if p[1] > math.MaxInt64 || p[2] > math.MaxInt64 || uint32(p[3]) >= uint32(len(advices)) {
		return einval
	}
	return toErrno(unix.Fadvise(f.host, int64(p[1]), int64(p[2]), advices[uint32(p[3])]))
}

func fdAllocate(h *Host, _ api.Memory, p []uint64) errno {
	f, e := h.get(p[0], rightFdAllocate)
	if e != success {
		return e
	}
	if p[1] > math.MaxInt64 || p[2] > math.MaxInt64 || p[2] == 0 {
		return einval
	}
	return toErrno(retry(func() error { return unix.Fallocate(f.host, 0, int64(p[1]), int64(p[2])) }))
}

func fdSync(h *Host, _ api.Memory, p []uint64) errno {
	f, e := h.get(p[0], rightFdSync)
	if e != success {
		return e
	}
	return toErrno(unix.Fsync(f.host))
}

func fdDatasync(h *Host, _ api.Memory, p []uint64) errno {
	f, e := h.get(p[0], rightFdDatasync)
	if e != success {
		return e
	}
	return toErrno(unix.Fdatasync(f.host))
}

// retry repeats a system call that a signal of the Go runtime interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
