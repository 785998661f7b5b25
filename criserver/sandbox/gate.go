package sandbox

import (
	"context"
	"sync"
)

// gate lets users in until it is shut, and tells when the last one has left.
type gate struct {
	mu    sync.Mutex
	shut  bool
	users int
	idle  chan struct{}
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.users++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.users--
	if g.users == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// shutNow lets nobody in any more.
func (g *gate) shutNow() {
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
}

// close shuts the gate for good and waits until nobody is inside.
func (g *gate) close(ctx context.Context) error {
	g.mu.Lock()
	g.shut = true
	if g.users == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
