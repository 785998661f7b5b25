package stats

import (
	"time"

	"github.com/sunaba-project/sunaba/host/cgroup/usage"
)

// Rates turns the processor time of two readings of one object into cores used. The first reading
// of an object has no rate. The zero value knows none.
type Rates struct{ recent[window] }

type window struct {
	from  usage.CPU
	rate  uint64
	known bool // rate is one
}

// minWindow is how far apart readings must be for a rate that says something: closer ones repeat
// the one before.
const minWindow = 500 * time.Millisecond

// NanoCores records a reading and returns the billionths of a core used since the one before.
func (r *Rates) NanoCores(id string, now usage.CPU) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.of(id, func(w *window) bool { return now.At.Sub(w.from.At) > keepFor })
	if w.from.At.IsZero() || now.Usage < w.from.Usage {
		*w = window{from: now}
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
