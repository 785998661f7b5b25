package server

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
)

// errLeftOut says that an object is not in a list; why has been logged if it matters.
var errLeftOut = errors.New("left out")

// excuse keeps one object that cannot be measured from spoiling the list of all.
func (m *meter) excuse(kind, id string, err error) error {
	if err == nil {
		return nil
	}
	if !errdefs.IsNotFound(err) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		m.o.Logger.Warn("failed to measure "+kind, kind, id, "error", err)
	}
	return errLeftOut
}

// measure calls f for each item, side by side on as many processors as there are, and returns the
// results in order. An item whose f fails is left out.
//
// # Errors
//
// The context's.
func measure[T, R any](ctx context.Context, items []T, f func(T) (R, error)) ([]R, error) {
	results, failed := make([]R, len(items)), make([]bool, len(items))
	var taken atomic.Int64
	var workers sync.WaitGroup
	for range min(len(items), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := int(taken.Add(1)) - 1; i < len(items) && ctx.Err() == nil; i = int(taken.Add(1)) - 1 {
				var err error
				results[i], err = f(items[i])
				failed[i] = err != nil
			}
		})
	}
	workers.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make([]R, 0, len(items))
	for i, r := range results {
		if !failed[i] {
			out = append(out, r)
		}
	}
	return out, nil
}
