package guest

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

const (
	wasmPage = 64 << 10
	// maxLinear is the largest linear memory: 65536 pages, or what a 32-bit host can lay out.
	maxLinear = uint64(1) << 32
	max32     = uint64(1) << 30
	// hugeFrom is the size from which huge pages pay: below, they only make idle guests heavy.
	hugeFrom = 64 << 20
)

// memory gives the guest its linear memory: one reservation of address space that never moves, opened
// page by page as the guest grows it, up to a ceiling that may move while it runs.
type memory struct {
	ceiling atomic.Uint64 // bytes that growing may reach
	limit   uint64        // bytes that the module may start with, 0 = any number

	reservation []byte
	open        uint64 // bytes that are readable and writable
	started     bool
	err         error // why the module cannot start
}

var _ experimental.MemoryAllocator = (*memory)(nil)

func newMemory(ceiling, limit uint64) *memory {
	m := &memory{limit: limit}
	m.setCeiling(ceiling)
	return m
}

// setCeiling moves the ceiling; 0 takes it away.
func (m *memory) setCeiling(bytes uint64) {
	if bytes == 0 {
		bytes = math.MaxUint64
	}
	m.ceiling.Store(bytes)
}

// Allocate implements experimental.MemoryAllocator. A WASI command has one memory.
func (m *memory) Allocate(_, most uint64) experimental.LinearMemory {
	most = max(min(most, maxLinear), wasmPage)
	if bits.UintSize == 32 {
		most = min(most, max32)
	}
	for m.reservation == nil {
		r, err := unix.Mmap(-1, 0, int(most), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		switch {
		case err == nil:
			m.reservation = r
		case most <= wasmPage:
			m.err = fmt.Errorf("reserve linear memory: %w", err)
			return m
		default:
			most /= 2 // a crowded address space: growing ends earlier
		}
	}
	if len(m.reservation) >= hugeFrom {
		_ = unix.Madvise(m.reservation, unix.MADV_NOHUGEPAGE) // a kernel without huge pages has nothing to leave out
	}
	return m
}

// Reallocate implements experimental.LinearMemory: nil makes memory.grow fail.
func (m *memory) Reallocate(size uint64) []byte {
	if !m.started {
		m.started = true
		return m.begin(size)
	}
	if size > m.ceiling.Load() || !m.extend(size) {
		return nil
	}
	return m.reservation[:size:size]
}

// begin gives the module what it starts with. wazero takes no nil here: when there is not enough it gets
// untouched memory and load reports the error.
func (m *memory) begin(size uint64) []byte {
	if m.limit != 0 && size > m.limit && m.err == nil {
		m.err = fmt.Errorf("the module starts with %d bytes of memory, the container's limit is %d", size, m.limit)
	}
	if m.err == nil && !m.extend(size) {
		m.err = fmt.Errorf("the module starts with %d bytes of memory, more than there are", size)
	}
	if m.err != nil {
		return make([]byte, size)
	}
	return m.reservation[:size:size]
}

// extend makes the first size bytes of the reservation usable.
func (m *memory) extend(size uint64) bool {
	switch {
	case size > uint64(len(m.reservation)):
		return false
	case size <= m.open:
		return true
	}
	if err := unix.Mprotect(m.reservation[m.open:size], unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return false
	}
	if m.open < hugeFrom && size >= hugeFrom {
		_ = unix.Madvise(m.reservation, unix.MADV_HUGEPAGE) // as in Allocate
	}
	m.open = size
	return true
}

// Free implements experimental.LinearMemory. The process ends with its guest and the memory with it.
func (m *memory) Free() {}
