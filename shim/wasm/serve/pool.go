package serve

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/linear"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp"
)

// Defaults of Options, and how long a guest that was ended may take to notice.
const (
	DefaultConcurrency = 100
	DefaultQueue       = 1000
	noticeTime         = 2 * time.Second
)

// Options are how a component's instances are used.
type Options struct {
	Kept        bool // one instance for all requests, else each has its own
	Concurrency int  // instances at a time, 0 = DefaultConcurrency
	Queue       int  // requests that wait for one, 0 = DefaultQueue

	// Overrun is called when a guest that was ended continues to compute.
	Overrun func(reason error)
}

// Instances provides instances of one component for requests. It implements wasihttp.Instances.
type Instances struct {
	component *Component
	options   Options
	seats     chan struct{} // has one for each instance that a request may have
	waiting   atomic.Int64

	mu       sync.Mutex
	spare    *Instance      // a fresh one, or the kept one
	coming   chan *Instance // gets the one that is being made, if no request has taken it out
	lent     int            // how many requests have one, or have one made
	released chan struct{}  // closed when the next one is given back
}

var _ wasihttp.Instances = (*Instances)(nil)

// NewInstances makes them. first, if it is not nil, is the instance of the first request.
func NewInstances(c *Component, first *Instance, o Options) *Instances {
	if o.Concurrency <= 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.Queue <= 0 {
		o.Queue = DefaultQueue
	}
	if o.Kept {
		o.Concurrency = 1
	}
	return &Instances{component: c, options: o, spare: first, seats: make(chan struct{}, o.Concurrency), released: make(chan struct{})}
}

// Take implements wasihttp.Instances.
func (p *Instances) Take(ctx context.Context, end time.Time) (wasihttp.Guest, error) {
	if err := p.enter(ctx, end); err != nil {
		return nil, err
	}
	i, err := p.instance(ctx, end)
	if err != nil {
		<-p.seats
		return nil, err
	}
	return &guest{Instance: i, from: p}, nil
}

// instance makes an instance, unless there is a spare one. Where others have all the memory, it
// waits until one of them gives its back.
func (p *Instances) instance(ctx context.Context, end time.Time) (*Instance, error) {
	for {
		i, coming, released := p.lend()
		if i == nil && coming != nil {
			i = <-coming
		}
		if i != nil {
			return i, nil
		}
		i, err := p.component.Instantiate()
		if err == nil {
			return i, nil
		}
		alone := p.failed(released)
		var memory *linear.StartError
		if alone || !errors.As(err, &memory) {
			return nil, err
		}
		ctx, leave := until(ctx, end)
		select {
		case <-released:
			leave()
		case <-ctx.Done():
			leave()
			return nil, context.Cause(ctx)
		}
	}
}

// until is a context that ends with ctx and at a time, unless that is zero. Only who waits needs
// one.
func until(ctx context.Context, end time.Time) (context.Context, context.CancelFunc) {
	if end.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, end)
}

// lend counts a request in, and returns the spare instance, nil for none, what gets the one that is
// being made, nil for none, and what is closed when the next one is given back.
func (p *Instances) lend() (spare *Instance, coming <-chan *Instance, released <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lent++
	spare, p.spare = p.spare, nil
	coming, p.coming = p.coming, nil
	return spare, coming, p.released
}

// back counts a request out that has given its memory back, with the instance that is kept, and
// reports whether it was the last.
func (p *Instances) back(kept *Instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lent--
	if kept != nil {
		p.spare = kept
	}
	p.tell()
	return p.lent == 0
}

// failed counts a request out that found no memory, and reports whether nobody else had any: nor
// since it was counted in, which released tells.
func (p *Instances) failed(released <-chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lent--
	if p.lent > 0 || p.released != released {
		return false
	}
	p.tell() // those that took this one for an instance, and wait for its memory
	return true
}

// tell wakes who waits for memory. The caller holds mu.
func (p *Instances) tell() {
	close(p.released)
	p.released = make(chan struct{})
}

// enter waits for a seat. Goroutines that wait for a channel are served in their order.
func (p *Instances) enter(ctx context.Context, end time.Time) error {
	select {
	case p.seats <- struct{}{}:
		return nil
	default:
	}
	if p.waiting.Add(1) > int64(p.options.Queue) {
		p.waiting.Add(-1)
		return wasihttp.ErrBusy
	}
	defer p.waiting.Add(-1)
	ctx, leave := until(ctx, end)
	defer leave()
	select {
	case p.seats <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close closes the spare instance. No request may be running.
func (p *Instances) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spare != nil {
		p.spare.Close()
		p.spare = nil
	}
}

// guest is an instance that answers a request.
type guest struct {
	*Instance
	from *Instances

	mu       sync.Mutex
	released bool
	watchdog *time.Timer
}

// Context implements wasihttp.Guest.
func (g *guest) Context() context.Context { return g.ctx }

// Async implements wasihttp.Guest.
func (g *guest) Async() bool { return g.async }

// Handle implements wasihttp.Guest.
func (g *guest) Handle(ctx context.Context, handles ...uint64) error {
	_, err := g.handle.Call(ctx, handles...)
	return err
}

// Stop implements wasihttp.Guest.
func (g *guest) Stop(reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.released || g.watchdog != nil {
		return
	}
	g.wasi.End(reason)
	g.watchdog = time.AfterFunc(noticeTime, func() {
		g.mu.Lock()
		overrun := !g.released
		g.mu.Unlock()
		if overrun && g.from.options.Overrun != nil {
			g.from.options.Overrun(reason)
		}
	})
}

// Release implements wasihttp.Guest.
func (g *guest) Release(err error) {
	g.mu.Lock()
	g.released = true
	ended := g.watchdog != nil
	if ended {
		g.watchdog.Stop()
	}
	g.mu.Unlock()
	kept := g.Instance
	if !g.from.options.Kept || err != nil || ended {
		g.Close()
		kept = nil
	}
	alone := g.from.back(kept)
	<-g.from.seats
	if alone && !g.from.options.Kept {
		g.from.prepare()
	}
}

// prepare makes the instance of the next request where no other one runs: then it waits for
// nothing, and takes memory from nobody. A request that comes meanwhile waits for it, since two
// instances would share what is meant for one. Where there is no memory for it, the request tries
// again.
func (p *Instances) prepare() {
	coming := make(chan *Instance, 1)
	p.mu.Lock()
	if p.lent > 0 || p.spare != nil { // whoever makes one already is counted in lent
		p.mu.Unlock()
		return
	}
	p.lent++
	p.coming = coming
	p.mu.Unlock()
	i, err := p.component.Instantiate()
	if err != nil {
		i = nil
	}
	p.mu.Lock()
	p.lent--
	if p.coming != nil {
		p.coming, p.spare = nil, i
	}
	p.tell() // who waits for memory takes it
	p.mu.Unlock()
	coming <- i // a request that waits for it counts itself
}
