package guest

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

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

// memory gives the guest its linear memory: one reservation of address space that never moves,
// opened page by page as the guest grows it, up to a ceiling that may move while it runs.
type memory struct {
	ceiling atomic.Uint64 // bytes that it may reach
	refused time.Time     // when it could not grow for that, the last time

	reservation []byte
	open        uint64 // bytes that are readable and writable
	started     bool
	err         error // why the module cannot start

	image    image
	imageErr error // why it could not be mapped
}

// image is a file that holds what a part of the memory holds at the start. All guests of a module
// share its pages until they write to them.
type image struct {
	file     *os.File // nil = none
	at, size uint64
}

var _ experimental.MemoryAllocator = (*memory)(nil)

func newMemory(ceiling uint64) *memory {
	m := &memory{}
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
		return m.initial(size)
	}
	if size > m.ceiling.Load() {
		m.refused = time.Now()
		return nil
	}
	if !m.extend(size) {
		return nil
	}
	return m.reservation[:size:size]
}

// initial gives the module what it starts with. wazero takes no nil here: a module that starts with
// more than there is stops it with a panic of m.err, which instantiate returns. To allocate that
// much could end the process.
func (m *memory) initial(size uint64) []byte {
	if limit := m.ceiling.Load(); size > limit && m.err == nil {
		m.err = fmt.Errorf("the module starts with %d bytes of memory, the container's limit is %d", size, limit)
	}
	if m.err == nil && !m.extend(size) {
		m.err = fmt.Errorf("the module starts with %d bytes of memory, more than there are", size)
	}
	if m.err != nil {
		panic(m.err)
	}
	if m.image.file != nil {
		m.imageErr = m.mapImage(size)
	}
	return m.reservation[:size:size]
}

// fullFor is how long after its memory could not grow the end of a guest is taken for the end of
// that.
const fullFor = time.Second

// full says whether a guest that ends with this code does so because its memory could not grow any
// more: at once, by a trap, as what C, C++ and Rust make of it, or as Go's runtime.
func (m *memory) full(code uint32) bool {
	const outOfMemory = 2 // Go's
	return (code == exitTrap || code == outOfMemory) && !m.refused.IsZero() && time.Since(m.refused) < fullFor
}

// mapImage lays the image over the memory that the module starts with.
func (m *memory) mapImage(size uint64) error {
	i := m.image
	defer i.file.Close()
	if i.at > size || i.size > size-i.at {
		return errors.New("image is larger than the memory")
	}
	at := unsafe.Pointer(&m.reservation[i.at])
	got, err := unix.MmapPtr(int(i.file.Fd()), 0, at, uintptr(i.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("map image of memory: %w", err)
	}
	if got != at {
		return errors.New("image was mapped elsewhere")
	}
	return nil
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

// Free implements experimental.LinearMemory. The process ends with its guest and the memory with
// it.
func (m *memory) Free() {}
