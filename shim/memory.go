package shim

import (
	"runtime"
	"runtime/debug"
	"time"
)

// TuneMemory makes the Go runtime a small one: a shim lives as long as its pod and does
// little, so its memory counts and its speed between two calls does not.
func TuneMemory() {
	debug.SetGCPercent(30)
	if runtime.NumCPU() > 2 {
		runtime.GOMAXPROCS(2) // each further one has a cache of its own
	}
}

// GiveMemoryBack returns what the last work needed to the kernel.
func GiveMemoryBack() { debug.FreeOSMemory() }

// settleTime is how long a shim waits for the next call before it gives memory back.
const settleTime = 200 * time.Millisecond

// GiveMemoryBackSoon returns a function that has memory given back when it was not called for a while, so that
// the calls of a pod's start do not each pay for it. Nothing runs in between.
func GiveMemoryBackSoon() func() {
	timer := time.AfterFunc(settleTime, GiveMemoryBack)
	return func() { timer.Reset(settleTime) }
}
