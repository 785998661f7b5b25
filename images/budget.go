package images

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
)

// growth is the room that pulls under way have taken and are about to take.
type growth struct {
	mu     sync.Mutex
	pulls  int
	before int64 // what images took when the first of them began, and what has been added since
	taken  int64 // by pulls under way
}

// reserve takes room from the budget for a pull, until its session is closed.
//
// # Errors
//
// ErrResourceExhausted if that is more than there is.
func (x *session) reserve(ctx context.Context, bytes int64) error {
	s := x.s
	if s.budget <= 0 {
		return nil
	}
	s.growth.mu.Lock()
	defer s.growth.mu.Unlock()
	if x.closed {
		return nil // another pull goes on with a layer that this one began
	}
	if !x.reserving {
		if s.growth.pulls == 0 {
			used, err := s.used(ctx)
			if err != nil {
				return err
			}
			s.growth.before = used
		}
		s.growth.pulls++
		x.reserving = true
	}
	if have := s.growth.before + s.growth.taken; have+bytes > s.budget {
		return fmt.Errorf("images take %d bytes, %d more are needed and their budget is %d (images.budget_mib): remove images, or raise it: %w",
			have, bytes, s.budget, errdefs.ErrResourceExhausted)
	}
	s.growth.taken += bytes
	x.reserved += bytes
	return nil
}

// release gives room back; what has been recorded goes on taking it.
func (x *session) release() {
	g := &x.s.growth
	g.mu.Lock()
	defer g.mu.Unlock()
	x.closed = true
	if !x.reserving {
		return
	}
	g.taken -= x.reserved
	if x.recorded {
		g.before += x.reserved
	}
	g.pulls--
	x.reserving, x.reserved = false, 0
}

// used returns the bytes that images take.
func (s *Service) used(ctx context.Context) (int64, error) {
	images, _, err := s.FsUsage(ctx)
	return images.Bytes, err
}
