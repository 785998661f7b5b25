package guest

import (
	"runtime"
	"runtime/debug"
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
	p := new(pace)
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	p.set(mostPercent)
	p.follow()
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

// TestPaceOfASmallHeap that works: there are 16 MiB of garbage between two collections that come by
// themselves, also where one is not swept yet when the pace looks: 6.5 MiB if it counted what is
// not swept. Go starts a collection at 0.7 of the way to 16 MiB if it expects to take long.
func TestPaceOfASmallHeap(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as guests have it
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	p := new(pace)
	p.set(mostPercent)
	p.follow()
	live := make([]byte, 2<<20)
	cycles := []metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}}
	metrics.Read(cycles)
	before := cycles[0].Value.Uint64()
	const total = 1 << 30
	recent := make([][]byte, 16)
	for i := range total / 4096 {
		if recent[i%16] = make([]byte, 4096); i%16 == 0 {
			runtime.Gosched()
		}
	}
	runtime.KeepAlive(live)
	metrics.Read(cycles)
	if n := cycles[0].Value.Uint64() - before; total/n < leastGarbage*5/8 {
		t.Errorf("%d collections of %d KiB each, want about %d", n, total/n>>10, leastGarbage>>10)
	}
}
