package stats

import (
	"sync"
	"time"
)

// Rates turns the processor time of two readings of one object into cores used. The first reading of an object has no
// rate.
type Rates struct {
	mu   sync.Mutex
	last map[string]*window
}

type window struct {
	from CPU
	rate uint64
}

// minWindow is how far apart readings must be for a rate that says something: closer ones repeat the one before.
const minWindow = 500 * time.Millisecond

// NewRates returns an empty memory of readings.
func NewRates() *Rates { return &Rates{last: map[string]*window{}} }

// NanoCores records a reading and returns the billionths of a core used since the one before.
func (r *Rates) NanoCores(id string, now CPU) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok := r.last[id]
	if !ok || now.Usage < w.from.Usage {
		r.last[id] = &window{from: now}
		return 0, false
	}
	elapsed := now.At.Sub(w.from.At)
	if elapsed < minWindow {
		return w.rate, w.rate != 0
	}
	w.rate = uint64(float64(now.Usage-w.from.Usage) / elapsed.Seconds())
	w.from = now
	return w.rate, true
}

// Forget drops what is known of an object that is gone.
func (r *Rates) Forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, id)
}
