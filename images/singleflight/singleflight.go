// Package singleflight lets everybody who asks for the same piece of work share one run of it.
//
// A run has a context of its own. It ends when no caller waits for it any more, so that
// one impatient caller does not take the result away from the others, and nobody works for nobody.
package singleflight

import (
	"context"
	"sync"
)

// Group shares runs by key. The zero value is ready for use.
type Group[T any] struct {
	mu   sync.Mutex
	runs map[string]*run[T]
	all  sync.WaitGroup
}

type run[T any] struct {
	cancel  context.CancelFunc
	waiting int
	done    chan struct{}
	value   T
	err     error
}

// Do returns the result of fn, or of the run of the same key that is already
// in progress. When ctx ends first its error is returned at once; a run that
// nobody waits for any more is cancelled and its key is free again.
func (g *Group[T]) Do(ctx context.Context, key string, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	if err := context.Cause(ctx); err != nil {
		return zero, err
	}
	r := g.join(ctx, key, fn)
	select {
	case <-r.done:
		g.leave(key, r)
		return r.value, r.err
	case <-ctx.Done():
		g.leave(key, r)
		return zero, context.Cause(ctx)
	}
}

// Wait returns when no run is in progress. Call it after the last Do.
func (g *Group[T]) Wait() { g.all.Wait() }

func (g *Group[T]) join(ctx context.Context, key string, fn func(context.Context) (T, error)) *run[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r, ok := g.runs[key]; ok {
		r.waiting++
		return r
	}
	if g.runs == nil {
		g.runs = make(map[string]*run[T])
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &run[T]{cancel: cancel, waiting: 1, done: make(chan struct{})}
	g.runs[key] = r
	g.all.Go(func() {
		defer cancel()
		r.value, r.err = fn(ctx)
		g.forget(key, r)
		close(r.done)
	})
	return r
}

func (g *Group[T]) leave(key string, r *run[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.waiting--
	if r.waiting == 0 {
		r.cancel()
		if g.runs[key] == r {
			delete(g.runs, key)
		}
	}
}

func (g *Group[T]) forget(key string, r *run[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs[key] == r {
		delete(g.runs, key)
	}
}
