package wasi

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxBuffers is the kernel's limit of buffers in one call (IOV_MAX).
const maxBuffers = 1024

// maxTransfer is the kernel's limit of bytes in one call (MAX_RW_COUNT).
const maxTransfer = 0x7ffff000

// Room is how much room a pipe has at least when it says that it has room, in bytes (PIPE_BUF).
const Room = 4096

// Buffers are what one call reads into or writes from, in the kernel's form. They are made with
// Add, and a caller that keeps their memory makes no garbage.
type Buffers []unix.Iovec

// Add appends a buffer, unless it is empty. What is beyond the kernel's limits is left for the next
// call: buffers that are too many, and the rest of one that is too long.
func (b Buffers) Add(p []byte) Buffers {
	if len(p) == 0 || b.Full() {
		return b
	}
	v := unix.Iovec{Base: &p[0]}
	v.SetLen(min(len(p), maxTransfer))
	return append(b, v)
}

// Full reports whether Add would leave a buffer out.
func (b Buffers) Full() bool { return len(b) >= maxBuffers }

// shorten cuts a list of buffers to at most limit bytes.
func (b Buffers) shorten(limit int) Buffers {
	for i := range b {
		if size := int(b[i].Len); size >= limit {
			b[i].SetLen(limit)
			return b[:i+1]
		}
		limit -= int(b[i].Len)
	}
	return b
}

// advance drops n bytes from the front of a list of buffers.
func (b Buffers) advance(n int) Buffers {
	for len(b) > 0 && uint64(n) >= uint64(b[0].Len) {
		n -= int(b[0].Len)
		b = b[1:]
	}
	if len(b) > 0 && n > 0 {
		size := int(b[0].Len) - n
		b[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(b[0].Base), n))
		b[0].SetLen(size)
	}
	return b
}

// total is the number of bytes in a list of buffers, cut to what one call can move.
func (b Buffers) total() int {
	var sum uint64
	for i := range b {
		sum += uint64(b[i].Len)
	}
	return int(min(sum, maxTransfer))
}

// transfer is readv or writev, or their plain forms for one buffer.
func transfer(plain, vector uintptr, fd int, b Buffers) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		var n uintptr
		var err unix.Errno
		if len(b) == 1 {
			n, _, err = unix.Syscall(plain, uintptr(fd), uintptr(unsafe.Pointer(b[0].Base)), uintptr(b[0].Len))
		} else {
			n, _, err = unix.Syscall(vector, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		}
		switch err {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, err
		}
	}
}

// transferAt is preadv or pwritev.
func transferAt(call uintptr, fd int, b Buffers, offset int64) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	// The kernel takes the offset in two words of its own size; on 64 bits the second counts for
	// nothing.
	low, high := uintptr(offset), uintptr(uint64(offset)>>32)
	for {
		n, _, err := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), low, high, 0)
		switch err {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, err
		}
	}
}
