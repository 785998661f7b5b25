package linear

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory is the linear memory of an instance, an experimental.LinearMemory.
type Memory struct {
	pool *Pool
	part []byte // its reservation
	open uint64 // bytes of it that are readable and writable
	size uint64 // bytes that the guest has, which are counted
	live bool   // an instance has it
	laid bool   // the image lies in it
}

// Reallocate implements experimental.LinearMemory: nil makes memory.grow fail.
func (m *Memory) Reallocate(size uint64) []byte {
	if !m.live {
		return m.initial(size)
	}
	if size <= m.size {
		return m.part[:size:size]
	}
	if each := m.pool.options.Each; each != 0 && size > each || !m.pool.charge(size-m.size) {
		m.pool.refused.Store(time.Now().UnixNano())
		return nil
	}
	if !m.extend(size) {
		m.pool.refund(size - m.size)
		return nil
	}
	m.size = size
	return m.part[:size:size]
}

// initial gives the module what it starts with. wazero takes no nil here: a module that starts with
// more than there is stops it with a panic of a StartError. To allocate that much could end the
// process.
func (m *Memory) initial(size uint64) []byte {
	p := m.pool
	limit := p.ceiling.Load()
	if p.options.Each != 0 {
		limit = min(limit, p.options.Each)
	}
	if size > limit {
		m.refuse(&StartError{Err: fmt.Errorf("the module starts with %d bytes of memory, the container's limit is %d", size, limit)})
	}
	if !p.charge(size) {
		p.refused.Store(time.Now().UnixNano())
		m.refuse(&StartError{Err: fmt.Errorf("the module starts with %d bytes of memory, %d of the container's %d are in use", size, p.used.Load(), limit)})
	}
	if !m.extend(size) {
		p.refund(size)
		m.refuse(&StartError{Err: fmt.Errorf("the module starts with %d bytes of memory, a guest can have %d", size, len(m.part))})
	}
	if p.image.File != nil && !m.laid {
		if err := m.lay(size); err != nil {
			p.refund(size)
			m.refuse(&StartError{Err: err, Image: true})
		}
	}
	m.live, m.size = true, size
	return m.part[:size:size]
}

// refuse gives the part back and ends the instantiation.
func (m *Memory) refuse(err *StartError) {
	m.pool.giveBack(m)
	panic(err)
}

// lay maps the image over the memory that the module starts with.
func (m *Memory) lay(size uint64) error {
	i := m.pool.image
	if i.At > size || i.Size > size-i.At {
		return errors.New("image is larger than the memory")
	}
	at := unsafe.Pointer(&m.part[i.At])
	got, err := unix.MmapPtr(int(i.File.Fd()), 0, at, uintptr(i.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("map image of memory: %w", err)
	}
	if got != at {
		return errors.New("image was mapped elsewhere")
	}
	m.laid = true
	if m.pool.options.Seats == 0 {
		i.File.Close() // it is not needed again
	}
	return nil
}

// extend makes the first size bytes of the part usable.
func (m *Memory) extend(size uint64) bool {
	switch {
	case size > uint64(len(m.part)):
		return false
	case size <= m.open:
		return true
	}
	if err := unix.Mprotect(m.part[m.open:size], unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return false
	}
	if m.open < hugeFrom && size >= hugeFrom {
		_ = unix.Madvise(m.part, unix.MADV_HUGEPAGE) // as in reserve
	}
	m.open = size
	return true
}

// Free implements experimental.LinearMemory: what the guest wrote is dropped, and the next instance
// finds what the module starts with. In a process with one guest the memory ends with it.
func (m *Memory) Free() {
	if !m.live || m.pool.options.Seats == 0 {
		return
	}
	// The image's pages are private copies of a file, so that they read as the file again.
	if err := unix.Madvise(m.part[:m.open], unix.MADV_DONTNEED); err != nil {
		return // nothing else may get it; its bytes stay counted, and one seat less is left
	}
	m.live = false
	m.pool.refund(m.size)
	m.size = 0
	m.pool.giveBack(m)
}

func (p *Pool) giveBack(m *Memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, m)
}
