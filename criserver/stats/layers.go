package stats

import (
	"context"
	"sync"
	"time"
)

// LayerUsage is what a container's writable layer takes.
type LayerUsage struct {
	At            time.Time // of the reading
	Bytes, Inodes int64
}

// Layers measures writable layers. A reading walks through every file of a layer, and several
// clients ask for the same containers again and again; so a reading is good for a second, and for
// longer where it took long: at most a twentieth of the time is spent on walking.
type Layers struct {
	measure func(ctx context.Context, key string) (bytes, inodes int64, err error)

	mu      sync.Mutex
	last    map[string]*layer
	sweepAt int
}

type layer struct {
	mu    sync.Mutex // held while it is read, so that one reading serves all who wait for it
	usage LayerUsage
	good  time.Time // until when usage is
}

const (
	layerGood  = time.Second
	layerShare = 20 // of the time that a reading took
)

// NewLayers returns a memory of readings, which are made by measure.
func NewLayers(measure func(ctx context.Context, key string) (bytes, inodes int64, err error)) *Layers {
	return &Layers{measure: measure, last: map[string]*layer{}, sweepAt: firstSweep}
}

// Usage returns what the layer of the given name takes.
//
// # Errors
//
// Those of measure, which are not remembered.
func (l *Layers) Usage(ctx context.Context, key string) (LayerUsage, error) {
	e := l.entry(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	started := time.Now()
	if started.Before(e.good) {
		return e.usage, nil
	}
	bytes, inodes, err := l.measure(ctx, key)
	if err != nil {
		l.Forget(key)
		return LayerUsage{}, err
	}
	now := time.Now()
	e.usage = LayerUsage{At: started, Bytes: bytes, Inodes: inodes}
	e.good = now.Add(max(layerGood, layerShare*now.Sub(started)))
	return e.usage, nil
}

func (l *Layers) entry(key string) *layer {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.last[key]
	if !ok {
		if len(l.last) >= l.sweepAt {
			l.sweep()
		}
		e = &layer{}
		l.last[key] = e
	}
	return e
}

// sweep drops what is too old; much of it belongs to removed layers. One that is being read is not
// dropped.
func (l *Layers) sweep() {
	for key, e := range l.last {
		if !e.mu.TryLock() {
			continue
		}
		if time.Now().After(e.good) {
			delete(l.last, key)
		}
		e.mu.Unlock()
	}
	l.sweepAt = max(firstSweep, 2*len(l.last))
}

// Forget drops what is known of a layer.
func (l *Layers) Forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, key)
}
