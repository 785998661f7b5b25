package wasip1

import (
	"encoding/binary"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

// The options of the extension, in its order. Its only level is 0, the socket's own.
var socketOptions = [...]int{
	unix.SO_REUSEADDR, unix.SO_TYPE, unix.SO_ERROR, unix.SO_DONTROUTE, unix.SO_BROADCAST, unix.SO_SNDBUF,
	unix.SO_RCVBUF, unix.SO_KEEPALIVE, unix.SO_OOBINLINE, unix.SO_LINGER, unix.SO_RCVLOWAT, unix.SO_RCVTIMEO,
	unix.SO_SNDTIMEO, unix.SO_ACCEPTCONN, unix.SO_BINDTODEVICE,
}

// maxOption bounds the size of an option's value.
const maxOption = 128

// sizeTimeval is the size of a guest's timeval: two i64.
const sizeTimeval = 16

// option finds the kernel's name of an option.
func option(level, name uint64) (int, errno) {
	if uint32(level) != 0 || uint32(name) >= uint32(len(socketOptions)) {
		return 0, enoprotoopt
	}
	return socketOptions[uint32(name)], success
}

// timeout is where a socket's timeout is kept; the kernel's would not count, because every wait is in
// poll.
func (f *file) timeout(name int) *time.Duration {
	switch name {
	case unix.SO_RCVTIMEO:
		return &f.receiveLimit
	case unix.SO_SNDTIMEO:
		return &f.sendLimit
	}
	return nil
}

func sockSetsockopt(h *Host, mem api.Memory, p []uint64) errno {
	f, e := h.socketFile(p[0], 0)
	if e != success {
		return e
	}
	name, e := option(p[1], p[2])
	if e != success {
		return e
	}
	if uint32(p[4]) > maxOption {
		return einval
	}
	value, e := record(mem, p[3], int(uint32(p[4])))
	if e != success {
		return e
	}
	if limit := f.timeout(name); limit != nil {
		if len(value) != sizeTimeval {
			return einval
		}
		seconds, micros := binary.LittleEndian.Uint64(value), binary.LittleEndian.Uint64(value[8:])
		if micros >= 1e6 {
			return edom
		}
		// More than a century is forever.
		*limit = 0
		if seconds < 100*365*24*3600 {
			*limit = time.Duration(seconds)*time.Second + time.Duration(micros)*time.Microsecond
		}
		return success
	}
	return toErrno(unix.SetsockoptString(f.host, unix.SOL_SOCKET, name, string(value)))
}

func sockGetsockopt(h *Host, mem api.Memory, p []uint64) errno {
	f, e := h.socketFile(p[0], 0)
	if e != success {
		return e
	}
	name, e := option(p[1], p[2])
	if e != success {
		return e
	}
	size, e := record(mem, p[4], 4)
	if e != success {
		return e
	}
	room := min(binary.LittleEndian.Uint32(size), maxOption)
	out, e := record(mem, p[3], int(room))
	if e != success {
		return e
	}
	value, e := f.option(name)
	if e != success {
		return e
	}
	put32(size, uint32(copy(out, value)))
	return success
}

// option reads an option as the guest numbers things.
func (f *file) option(name int) ([]byte, errno) {
	value := make([]byte, maxOption)
	if limit := f.timeout(name); limit != nil {
		put64(value, uint64(*limit/time.Second))
		put64(value[8:], uint64(*limit%time.Second/time.Microsecond))
		return value[:sizeTimeval], success
	}
	size := uint32(len(value))
	_, _, err := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(f.host), unix.SOL_SOCKET, uintptr(name),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&size)), 0)
	if err != 0 {
		return nil, toErrno(err)
	}
	switch name {
	case unix.SO_ERROR:
		put32(value, uint32(toErrno(unix.Errno(binary.NativeEndian.Uint32(value)))))
	case unix.SO_TYPE:
		kind := socketStream
		if binary.NativeEndian.Uint32(value) == unix.SOCK_DGRAM {
			kind = socketDatagram
		}
		put32(value, uint32(kind))
	}
	return value[:size], success
}
