package shims

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/client"
)

// Report is what there is to tell of a handler's shared shim. Its processes are as in Share.
type Report struct {
	Handler      string
	Shim, Keeper int
	Pods         int           // that share it
	CPU          time.Duration // of both processes, since the keeper was started
	History      client.History
}

// historyLimit is how long a shim may take to tell of its history. One that takes over containers just now tells it later.
const historyLimit = time.Second

// Reports tells of all shared shims that there are, sorted by handler.
func (s *Set) Reports(ctx context.Context) []Report {
	ctx, cancel := context.WithTimeout(ctx, historyLimit)
	defer cancel()
	var mu sync.Mutex
	var out []Report
	var all sync.WaitGroup
	for _, one := range s.all() {
		all.Go(func() {
			if r, ok := one.report(ctx); ok {
				mu.Lock()
				out = append(out, r)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.SortFunc(out, func(a, b Report) int { return cmp.Compare(a.Handler, b.Handler) })
	return out
}

func (s *shared) report(ctx context.Context) (Report, bool) {
	c := s.living()
	if c == nil {
		return Report{}, false
	}
	r := Report{Handler: s.handler, Shim: c.PID(), Keeper: c.Keeper(), Pods: s.count()}
	var err error
	if r.CPU, err = s.o.CPU(s.o.Cgroups.Path(s.leaf)); err != nil && !errdefs.IsNotFound(err) {
		s.o.Logger.Debug("measure the shim of a handler", "handler", s.handler, "error", err)
	}
	h, err := c.History(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.history = h
	}
	r.History = s.history // or what was told last
	return r, s.client == c
}
