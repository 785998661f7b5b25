package guest

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// TestGarbageOfAServer: 16 MiB of garbage beside a heap of a few MiB, and as much as a large one
// has.
func TestGarbageOfAServer(t *testing.T) {
	const mib = 1 << 20
	for live, want := range map[uint64]int{0: 400, mib: 400, 4 * mib: 400, 8 * mib: 200, 16 * mib: 100, 100 * mib: 100} {
		if got := percentFor(live); got != want {
			t.Errorf("%d MiB in use: %d percent, want %d", live/mib, got, want)
		}
	}
}

// TestPaceFollowsTheHeap after each collection, in both directions.
func TestPaceFollowsTheHeap(t *testing.T) {
	new(pace).follow()
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	reached := func(want uint64) {
		t.Helper()
		for range 1000 {
			runtime.GC()
			if metrics.Read(percent); percent[0].Value.Uint64() == want {
				return
			}
		}
		t.Errorf("garbage may be %d percent of the heap, want %d", percent[0].Value.Uint64(), want)
	}
	large := make([]byte, 64<<20)
	reached(100)
	runtime.KeepAlive(large)
	large = nil
	reached(mostPercent)
}
