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

// Report describes the shared shim of a handler.
type Report struct {
	Handler          string
	Shim, Supervisor int           // pids; 0 = not known
	Pods             int           // that hold it
	CPU              time.Duration // of both processes, since the supervisor was started
	History          client.History
}

// PIDs are the processes of the shim by the names that metrics have for them.
func (r Report) PIDs() map[string]int { return map[string]int{Shim: r.Shim, Supervisor: r.Supervisor} }

// historyLimit is how long a shim may take to tell its history. One that is adopting containers
// tells it later.
const historyLimit = time.Second

// Reports describes all shared shims, sorted by handler.
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
	r := Report{Handler: s.handler, Shim: c.PID(), Supervisor: c.Supervisor(), Pods: s.count()}
	var err error
	if r.CPU, err = s.o.CPU(s.o.Cgroups.Path(s.leaf)); err != nil && !errdefs.IsNotFound(err) {
		s.o.Logger.Debug("failed to measure the shim of a handler", "handler", s.handler, "error", err)
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
