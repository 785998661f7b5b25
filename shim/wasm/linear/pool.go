// Package linear gives the instances of one module their linear memories: parts of one reservation
// of address space that never moves. A part is opened page by page as its guest grows it, and given
// to another instance when its guest has ended. All of them together keep to one ceiling, which may
// move.
package linear

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

const (
	wasmPage = 64 << 10
	// maxLinear is the largest linear memory: one page less than 4 GiB, since the code that wazero
	// makes knows the size by its low 32 bits. max32 is what a 32-bit host can lay out.
	maxLinear = uint64(1)<<32 - wasmPage
	max32     = uint64(1) << 30
	// hugeFrom is the size from which huge pages pay: below, they only make idle guests heavy.
	hugeFrom = 64 << 20
)

// Options say how many memories there can be, and how large.
type Options struct {
	// Seats is how many memories there are at a time, and that they are used again. 0 is one for the
	// life of the process.
	Seats   int
	Ceiling uint64 // bytes that all memories together may reach, 0 = no bound
	Each    uint64 // bytes that one may reach, 0 = no bound
}

// Image is a file that holds what a part of each memory holds at the start. All guests of a module
// share its pages until they write to them.
type Image struct {
	File     *os.File // nil = none; it stays open
	At, Size uint64
}

// Pool is an experimental.MemoryAllocator for all instances of one module.
type Pool struct {
	options Options
	image   Image
	ceiling atomic.Uint64
	used    atomic.Uint64 // bytes of all memories
	refused atomic.Int64  // when one could not grow for a bound the last time, in Unix nanoseconds

	mu    sync.Mutex
	arena []byte // of all memories, side by side
	most  uint64 // size of each one's part
	made  int    // parts that were in use once
	free  []*Memory
}

var _ experimental.MemoryAllocator = (*Pool)(nil)

// New makes a pool.
func New(o Options) *Pool {
	p := &Pool{options: o}
	p.SetCeiling(o.Ceiling)
	return p
}

// SetCeiling moves the ceiling for the next growth; 0 takes it away.
func (p *Pool) SetCeiling(bytes uint64) {
	if bytes == 0 {
		bytes = math.MaxUint64
	}
	p.ceiling.Store(bytes)
}

// SetImage gives memories that are made from now on what they hold at the start.
func (p *Pool) SetImage(i Image) { p.image = i }

// StartError is what instantiating a module panics with that gets no memory: wazero has no other
// way.
type StartError struct {
	Err   error
	Image bool // the image is at fault
}

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// ErrNoSeat says that every memory is in use.
var ErrNoSeat = errors.New("every linear memory is in use")

// Allocate implements experimental.MemoryAllocator. A module has one memory.
func (p *Pool) Allocate(least, most uint64) experimental.LinearMemory {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.arena == nil {
		if err := p.reserve(least, most); err != nil {
			return failed{err}
		}
	}
	if n := len(p.free); n > 0 {
		m := p.free[n-1]
		p.free = p.free[:n-1]
		return m
	}
	if p.made == p.seats() {
		return failed{ErrNoSeat}
	}
	at := uint64(p.made) * p.most
	p.made++
	return &Memory{pool: p, part: p.arena[at : at+p.most : at+p.most]}
}

// seats is how many parts the arena has.
func (p *Pool) seats() int { return int(uint64(len(p.arena)) / p.most) }

// reserve takes the address space. Where it is crowded there are fewer parts, and then smaller
// ones: growing ends earlier.
func (p *Pool) reserve(least, most uint64) error {
	most = max(min(most, maxLinear), wasmPage)
	if bits.UintSize == 32 {
		most = narrow(least, most, p.options)
	}
	for seats := uint64(max(p.options.Seats, 1)); ; {
		err := error(unix.ENOMEM)
		var r []byte
		if most*seats <= math.MaxInt {
			r, err = unix.Mmap(-1, 0, int(most*seats), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		}
		switch {
		case err == nil:
			p.arena, p.most = r, most
			if most >= hugeFrom {
				_ = unix.Madvise(r, unix.MADV_NOHUGEPAGE) // a kernel without huge pages has nothing to leave out
			}
			return nil
		case seats > 1:
			seats /= 2
		case most > wasmPage:
			most /= 2
		default:
			return fmt.Errorf("reserve linear memory: %w", err)
		}
	}
}

// narrow is the size of each part where a process has 32 bits of address space: what a memory may
// reach at most, or its share of what all seats get together. A module that starts with more than
// that has fewer seats.
func narrow(least, most uint64, o Options) uint64 {
	if o.Each != 0 {
		most = min(most, (o.Each+wasmPage-1)/wasmPage*wasmPage)
	}
	share := max32 / uint64(max(o.Seats, 1)) / wasmPage * wasmPage
	return max(min(most, max(share, least), max32), wasmPage)
}

// Reservation is where the memories lie, 0 bytes before the first one.
func (p *Pool) Reservation() (base, size uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.arena) == 0 {
		return 0, 0
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p.arena)))), uint64(len(p.arena))
}

// Seats is how many memories there can be at a time, 0 before the first one.
func (p *Pool) Seats() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.arena) == 0 {
		return 0
	}
	return p.seats()
}

// Used is the size of all memories that are in use, in bytes.
func (p *Pool) Used() uint64 { return p.used.Load() }

// fullFor is how long after a memory could not grow the end of a guest is taken for the end of
// that.
const fullFor = time.Second

// Full says whether a memory could not grow for a bound a moment ago.
func (p *Pool) Full() bool {
	at := p.refused.Load()
	return at != 0 && time.Since(time.Unix(0, at)).Abs() < fullFor // the clock may have been set back
}

// charge counts more bytes of one memory, unless they are beyond the ceiling.
func (p *Pool) charge(more uint64) bool {
	for {
		used := p.used.Load()
		if limit := p.ceiling.Load(); more > limit || used > limit-more {
			return false
		}
		if p.used.CompareAndSwap(used, used+more) {
			return true
		}
	}
}

// refund takes bytes back.
func (p *Pool) refund(bytes uint64) { p.used.Add(-bytes) }

// failed is a memory that there is not.
type failed struct{ err error }

func (f failed) Reallocate(uint64) []byte { panic(&StartError{Err: f.err}) }
func (f failed) Free()                    {}
