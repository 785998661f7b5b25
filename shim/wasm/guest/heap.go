package guest

import (
	"runtime"
	"runtime/debug"
)

// Sizes of the Go heap, in bytes.
const (
	worthCollecting = 6 << 20  // below, a collection makes more memory dirty than it gives back
	headroom        = 16 << 20 // garbage that host functions may make before there is a collection
)

// limitHeap makes the collector work before a container's memory limit is reached. There is no other
// collection while the module is loaded.
func limitHeap(containerLimit uint64) {
	if containerLimit != 0 {
		debug.SetMemoryLimit(int64(containerLimit / 4 * 3))
	}
}

// settleHeap gives back what loading needed and sets when garbage is collected from now on. Few host
// functions make any.
func settleHeap() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > worthCollecting {
		debug.FreeOSMemory()
		runtime.ReadMemStats(&m)
	}
	used := int64(m.Sys - m.HeapReleased)
	if limit := used + headroom; limit < debug.SetMemoryLimit(-1) {
		debug.SetMemoryLimit(limit)
	}
}
