package stats

import (
	"maps"
	"sync"
)

// recent is what was read of objects lately, by their ids. They come and go for years: what is old
// is dropped whenever there is twice as much.
type recent[V any] struct {
	mu      sync.Mutex
	last    map[string]*V
	sweepAt int
}

const firstSweep = 256

// of is what is kept of an object. The caller holds the lock.
func (r *recent[V]) of(id string, old func(*V) bool) *V {
	v, ok := r.last[id]
	if ok {
		return v
	}
	if len(r.last) >= max(firstSweep, r.sweepAt) {
		maps.DeleteFunc(r.last, func(_ string, v *V) bool { return old(v) })
		r.sweepAt = 2 * len(r.last)
	}
	if r.last == nil {
		r.last = map[string]*V{}
	}
	v = new(V)
	r.last[id] = v
	return v
}

// Forget drops what is known of a removed object.
func (r *recent[V]) Forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, id)
}
