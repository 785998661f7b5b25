// Package memory keeps a small process small: a shim lives as long as its pod and does little, so
// its memory counts and its speed between two calls does not.
package memory

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// Tune makes the Go runtime a small one.
func Tune() {
	debug.SetGCPercent(busyPercent)
	if runtime.NumCPU() > 2 {
		runtime.GOMAXPROCS(2) // each further one has a cache of its own
	}
}

// How much garbage there may be, in percent of what is used: little in the long run, more while a
// pod starts, when a collection would take the processors from that and everything is collected
// soon after.
const (
	idlePercent = 30
	busyPercent = 400
)

// GiveBack returns to the kernel what the last work needed and idling does not: free heap, and the
// pages of the program itself, which stay in the page cache and come back one by one when they are
// used.
func GiveBack() {
	giveBackHeap(idlePercent)
	UnmapProgram()
}

func giveBackHeap(percent int) {
	debug.SetGCPercent(percent)
	runtime.GC() // what pools hold goes with the second collection
	debug.FreeOSMemory()
}

// settleTime is how long a shim waits for the next call before it gives memory back.
const settleTime = 200 * time.Millisecond

// askedTime is how long what questions leave may stay: containerd asks for figures every second,
// and giving memory back takes some milliseconds of CPU.
const askedTime = 10 * time.Second

// GiveBackSoon returns two functions. settled has memory given back when it was not called for a
// while, so that the calls of a pod's start do not each pay for it. asked, which is called after
// questions that come again and again, has it given back now and then. Nothing runs in between.
func GiveBackSoon() (settled, asked func()) {
	m := newSaver(settleTime, busyPercent, GiveBack)
	return m.settled, m.asked
}

// GiveBackHeapAfter returns a function to be called with each piece of work of a server, which may
// have as much garbage as GOGC says while it works. When it was not called for so long, free heap
// is returned to the kernel, and there may be little garbage until it is called again. At the first
// rest the pages of the program are unmapped too: a start looks at most of them, and what no
// process maps is what the kernel drops first where memory is short. Later they stay: a server's
// next call is not to wait for them.
func GiveBackHeapAfter(rest time.Duration) (worked func()) {
	usual := debug.SetGCPercent(busyPercent)
	debug.SetGCPercent(usual)
	forgetStart := sync.OnceFunc(UnmapProgram)
	return newSaver(rest, usual, func() {
		giveBackHeap(min(usual, idlePercent))
		forgetStart()
	}).settled
}

// newSaver returns a saver of a process that is busy, and allows garbage as such a one.
func newSaver(rest time.Duration, busyPercent int, give func()) *saver {
	m := &saver{rest: rest, busyPercent: busyPercent, give: give, busy: true}
	m.timer = time.AfterFunc(rest, func() { m.giveBack(true) })
	return m
}

type saver struct {
	rest        time.Duration
	busyPercent int
	give        func()

	mu      sync.Mutex
	busy    bool
	waiting bool // for the end of askedTime
	timer   *time.Timer
}

func (m *saver) settled() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.busy {
		m.busy = true
		debug.SetGCPercent(m.busyPercent)
	}
	m.timer.Reset(m.rest)
}

func (m *saver) asked() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting {
		return
	}
	m.waiting = true
	time.AfterFunc(askedTime, func() { m.giveBack(false) })
}

// giveBack gives memory back; when work is in progress, only at the end of that.
func (m *saver) giveBack(settled bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if settled {
		m.busy = false
	} else {
		m.waiting = false
	}
	if !m.busy {
		m.give()
	}
}
