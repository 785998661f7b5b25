package wasip1

import (
	"encoding/binary"
	"math"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

// maxIovecs is the kernel's limit of buffers in one call (IOV_MAX); the rest is left for the next call.
const maxIovecs = 1024

// maxTransfer is the kernel's limit of bytes in one call (MAX_RW_COUNT).
const maxTransfer = 0x7ffff000

// array returns count records of size bytes at offset in guest memory.
func array(mem api.Memory, offset, count uint64, size int) ([]byte, errno) {
	total := uint64(uint32(count)) * uint64(size)
	if total > math.MaxUint32 {
		return nil, efault
	}
	b, ok := mem.Read(uint32(offset), uint32(total))
	if !ok {
		return nil, efault
	}
	return b, success
}

// record returns size bytes at offset in guest memory.
func record(mem api.Memory, offset uint64, size int) ([]byte, errno) {
	b, ok := mem.Read(uint32(offset), uint32(size))
	if !ok {
		return nil, efault
	}
	return b, success
}

// text copies a string out of guest memory. No path or name that the kernel takes is longer than maxPath.
func text(mem api.Memory, offset, length uint64) (string, errno) {
	b, e := record(mem, offset, int(uint32(length)))
	if e == success && len(b) > maxPath {
		return "", enametoolong
	}
	return string(b), e
}

// vectors makes the host's view of an iovec_array or ciovec_array. It stays valid until release.
func (h *Host) vectors(mem api.Memory, offset, count uint64) ([]unix.Iovec, errno) {
	list, e := array(mem, offset, count, sizeIovec)
	if e != success {
		return nil, e
	}
	iovs := h.iovs[:0]
	for ; len(list) > 0 && len(iovs) < maxIovecs; list = list[sizeIovec:] {
		size := binary.LittleEndian.Uint32(list[4:])
		b, ok := mem.Read(binary.LittleEndian.Uint32(list), size)
		if !ok {
			return nil, efault
		}
		if size == 0 {
			continue
		}
		iov := unix.Iovec{Base: &b[0]}
		iov.SetLen(int(min(size, maxTransfer)))
		iovs = append(iovs, iov)
	}
	h.iovs = iovs
	return iovs, success
}

// release forgets the guest memory that vectors pointed to.
func (h *Host) release() { clear(h.iovs) }

func put16(b []byte, v uint16) { binary.LittleEndian.PutUint16(b, v) }
func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }
func put64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }
