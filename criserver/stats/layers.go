package stats

import (
	"context"
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/host/space"
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
	// Measure makes a reading. Its errors are not remembered.
	Measure func(ctx context.Context, key string, known *space.Known) (space.Use, error)

	recent[layer]
}

type layer struct {
	mu    sync.Mutex // held while it is read, so that one reading serves all who wait for it
	usage LayerUsage
	good  time.Time // until when usage is
	known space.Known
}

// old says whether a reading is of no use any more. One that is being made is.
func (e *layer) old() bool {
	if !e.mu.TryLock() {
		return false
	}
	defer e.mu.Unlock()
	return time.Now().After(e.good)
}

const (
	layerGood  = time.Second
	layerShare = 20 // of the time that a reading took
)

// Usage returns what the layer of the given name takes.
func (l *Layers) Usage(ctx context.Context, key string) (LayerUsage, error) {
	l.mu.Lock()
	e := l.of(key, (*layer).old)
	l.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	started := time.Now()
	if started.Before(e.good) {
		return e.usage, nil
	}
	u, err := l.Measure(ctx, key, &e.known)
	if err != nil {
		l.Forget(key)
		return LayerUsage{}, err
	}
	now := time.Now()
	e.usage = LayerUsage{At: started, Bytes: u.Bytes, Inodes: u.Inodes}
	e.good = now.Add(max(layerGood, layerShare*now.Sub(started)))
	return e.usage, nil
}
