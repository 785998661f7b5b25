package guest

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/memory"
)

// settled is how long after its start a guest has done most of what it does once.
const settled = 200 * time.Millisecond

// Sizes in bytes.
const (
	// worthCollecting is the size of a module from which loading it leaves much garbage. Below, a
	// collection makes more memory dirty (its own) than it gives back.
	worthCollecting = 1 << 20
	// headroom is the garbage that host functions may make before there is a collection; smallHeap
	// is what a process with a small module uses, and that.
	headroom  = 16 << 20
	smallHeap = 8<<20 + headroom
)

// settleHeap gives back what loading the module needed and sets when garbage is collected from now
// on. Few host functions make any; each request that is answered does.
func (g *guest) settleHeap() {
	limit := int64(smallHeap)
	if g.size >= worthCollecting {
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		limit = int64(m.Sys-m.HeapReleased) + headroom
	}
	if g.http != nil {
		g.pace.set(mostPercent)
		if g.size >= worthCollecting {
			g.pace.follow()
		}
	} else if limit < debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(limit)
	}
}

// pace sets when a process that answers requests collects garbage. Each request makes some 40 KiB
// and little stays: by Go's own measure there would be a collection every hundred requests, which
// all those under way wait for. There may be as much garbage as there is heap in use, and at least
// 16 MiB. A limited container's memory limit counts beside it, and rest gives the heap back.
type pace struct {
	once    sync.Once
	percent int
}

const (
	leastGarbage = 16 << 20 // bytes
	mostPercent  = 400      // the runtime collects nothing below 16 MiB then
)

// cycle is unreachable, so that its finalizer runs after every collection.
type cycle struct{ of *pace }

func (c *cycle) ended() {
	c.of.adjust()
	runtime.SetFinalizer(c, (*cycle).ended)
}

// follow has the pace follow the heap in use, which costs an idle process 100 KiB: it is for one
// that has many connections or a large module. It may be called again.
func (p *pace) follow() {
	p.once.Do(func() { runtime.SetFinalizer(&cycle{p}, (*cycle).ended) })
}

// adjust is called after every collection. The world stops for a new setting: not for a small
// difference.
func (p *pace) adjust() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m) // package metrics takes memory in each process that has it
	// HeapAlloc would have the garbage in it that is not swept yet. The next collection is due when
	// there are so many percent of garbage beside what this one left.
	live := m.NextGC * 100 / uint64(100+p.percent)
	if want := percentFor(live); want < p.percent*3/4 || want > p.percent*5/4 {
		p.set(want)
	}
}

func (p *pace) set(percent int) {
	p.percent = percent
	debug.SetGCPercent(percent)
}

// percentFor is the garbage that there may be beside so much heap in use, in percent of that.
func percentFor(live uint64) int {
	return int(min(max(leastGarbage*100/max(live, 1), 100), mostPercent))
}

// unmap lets the process forget what it has looked at of files that are mapped: this program, and
// machine code that guests share. Starting looks at most of them.
func (g *guest) unmap() {
	if g.shared {
		_ = unix.Madvise(g.code, unix.MADV_DONTNEED)
	}
	memory.UnmapProgram()
}

// rest is what a server does that has been idle for a while.
func (g *guest) rest() {
	debug.FreeOSMemory()
	g.unmap()
}
