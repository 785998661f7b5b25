package wasmedge

import (
	"encoding/binary"
	"time"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
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
func option(level, name uint64) (int, error) {
	if uint32(level) != 0 || uint32(name) >= uint32(len(socketOptions)) {
		return 0, unix.ENOPROTOOPT
	}
	return socketOptions[uint32(name)], nil
}

// timeout is the timeout that an option is, nil for other options.
func timeout(s *wasi.Socket, name int) *time.Duration {
	switch name {
	case unix.SO_RCVTIMEO:
		return &s.ReceiveTimeout
	case unix.SO_SNDTIMEO:
		return &s.SendTimeout
	}
	return nil
}

// socketAndOption reads what both calls are given first.
func socketAndOption(h *wasip1.Host, p []uint64) (*wasi.Socket, int, error) {
	s, err := h.Socket(p[0])
	if err != nil {
		return nil, 0, err
	}
	name, err := option(p[1], p[2])
	return s, name, err
}

func sockSetsockopt(h *wasip1.Host, mem api.Memory, p []uint64) error {
	s, name, err := socketAndOption(h, p)
	if err != nil {
		return err
	}
	if uint32(p[4]) > maxOption {
		return unix.EINVAL
	}
	value, err := wasip1.Record(mem, p[3], int(uint32(p[4])))
	if err != nil {
		return err
	}
	if limit := timeout(s, name); limit != nil {
		return setTimeout(limit, value)
	}
	return s.SetOption(name, value)
}

// setTimeout reads a timeval. More than a century is forever.
func setTimeout(limit *time.Duration, value []byte) error {
	if len(value) != sizeTimeval {
		return unix.EINVAL
	}
	seconds, micros := binary.LittleEndian.Uint64(value), binary.LittleEndian.Uint64(value[8:])
	if micros >= 1e6 {
		return unix.EDOM
	}
	*limit = 0
	if seconds < 100*365*24*3600 {
		*limit = time.Duration(seconds)*time.Second + time.Duration(micros)*time.Microsecond
	}
	return nil
}

func sockGetsockopt(h *wasip1.Host, mem api.Memory, p []uint64) error {
	s, name, err := socketAndOption(h, p)
	if err != nil {
		return err
	}
	size, err := wasip1.Record(mem, p[4], 4)
	if err != nil {
		return err
	}
	room := min(binary.LittleEndian.Uint32(size), maxOption)
	out, err := wasip1.Record(mem, p[3], int(room))
	if err != nil {
		return err
	}
	value, err := getOption(s, name)
	if err != nil {
		return err
	}
	put32(size, uint32(copy(out, value)))
	return nil
}

// getOption reads an option as the guest numbers things.
func getOption(s *wasi.Socket, name int) ([]byte, error) {
	value := make([]byte, maxOption)
	if limit := timeout(s, name); limit != nil {
		put64(value, uint64(*limit/time.Second))
		put64(value[8:], uint64(*limit%time.Second/time.Microsecond))
		return value[:sizeTimeval], nil
	}
	size, err := s.Option(name, value)
	if err != nil {
		return nil, err
	}
	switch name {
	case unix.SO_ERROR:
		put32(value, uint32(wasip1.ErrnoOf(unix.Errno(binary.NativeEndian.Uint32(value)))))
	case unix.SO_TYPE:
		kind := socketStream
		if binary.NativeEndian.Uint32(value) == unix.SOCK_DGRAM {
			kind = socketDatagram
		}
		put32(value, uint32(kind))
	}
	return value[:size], nil
}
