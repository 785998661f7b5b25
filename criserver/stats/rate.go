package stats

import (
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/host/cgroup/usage"
)

// Rates turns the processor time of two readings of one object into cores used. The first reading
// of an object has no rate.
type Rates struct {
	mu   sync.Mutex
	last map[string]*window
	// sweepAt is how many objects are remembered before old ones are dropped.
	sweepAt int
}

type window struct {
	from  usage.CPU
	rate  uint64
	known bool // rate is one
}

const firstSweep = 256

// minWindow is how far apart readings must be for a rate that says something: closer ones repeat
// the one before.
const minWindow = 500 * time.Millisecond

// NewRates returns an empty memory of readings.
func NewRates() *Rates { return &Rates{last: map[string]*window{}, sweepAt: firstSweep} }

// NanoCores records a reading and returns the billionths of a core used since the one before.
func (r *Rates) NanoCores(id string, now usage.CPU) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok := r.last[id]
	if !ok && len(r.last) >= r.sweepAt {
		r.sweep(now.At)
	}
	if !ok || now.Usage < w.from.Usage {
		r.last[id] = &window{from: now}
		return 0, false
	}
	elapsed := now.At.Sub(w.from.At)
	if elapsed < minWindow {
		return w.rate, w.known
	}
	w.rate = uint64(float64(now.Usage-w.from.Usage) / elapsed.Seconds())
	w.from, w.known = now, true
	return w.rate, true
}

// keepFor is how long a reading is of use: a rate over a longer time says nothing about now.
const keepFor = 10 * time.Minute

// sweep drops the readings of objects that are no longer asked for; many of them are removed.
func (r *Rates) sweep(now time.Time) {
	for id, w := range r.last {
		if now.Sub(w.from.At) > keepFor {
			delete(r.last, id)
		}
	}
	r.sweepAt = max(firstSweep, 2*len(r.last))
}

// Forget drops what is known of a removed object.
func (r *Rates) Forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, id)
}
