package wasip1

import (
	"encoding/binary"
	"math"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi/beneath"
)

// array returns count records of size bytes at offset in guest memory.
func array(mem api.Memory, offset, count uint64, size int) ([]byte, error) {
	total := uint64(uint32(count)) * uint64(size)
	if total > math.MaxUint32 {
		return nil, unix.EFAULT
	}
	return Record(mem, offset, int(total))
}

// Record returns size bytes at offset in guest memory; what lies outside of it is EFAULT.
func Record(mem api.Memory, offset uint64, size int) ([]byte, error) {
	b, ok := mem.Read(uint32(offset), uint32(size))
	if !ok {
		return nil, unix.EFAULT
	}
	return b, nil
}

// Text copies a string out of guest memory. No path or name that the kernel takes is longer than
// beneath.MaxPath.
func Text(mem api.Memory, offset, length uint64) (string, error) {
	b, err := Record(mem, offset, int(uint32(length)))
	if err == nil && len(b) > beneath.MaxPath {
		return "", unix.ENAMETOOLONG
	}
	return string(b), err
}

// Buffers makes the host's view of an iovec_array or ciovec_array. It stays valid until Release.
func (h *Host) Buffers(mem api.Memory, offset, count uint64) (wasi.Buffers, error) {
	list, err := array(mem, offset, count, sizeIovec)
	if err != nil {
		return nil, err
	}
	buffers := h.buffers[:0]
	for ; len(list) > 0 && !buffers.Full(); list = list[sizeIovec:] {
		b, ok := mem.Read(binary.LittleEndian.Uint32(list), binary.LittleEndian.Uint32(list[4:]))
		if !ok {
			return nil, unix.EFAULT
		}
		buffers = buffers.Add(b)
	}
	h.buffers = buffers
	return buffers, nil
}

// Release forgets the guest memory that Buffers pointed to.
func (h *Host) Release() { clear(h.buffers) }

func put16(b []byte, v uint16) { binary.LittleEndian.PutUint16(b, v) }
func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }
func put64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }
