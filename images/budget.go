package images

import (
	"context"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sunaba-project/sunaba/host/space"
)

// growth is the room that pulls under way have taken and are about to take.
type growth struct {
	mu     sync.Mutex
	pulls  int
	before int64 // what images took when the first of them began, and what has been added since
	taken  int64 // by pulls under way
}

// take makes sure of room for blobs that are to be fetched: on the disk, for what has not come yet, and in the budget.
//
// # Errors
//
// ErrResourceExhausted if there is less.
func (x *session) take(ctx context.Context, blobs ...ocispec.Descriptor) error {
	var total, missing int64
	for _, b := range blobs {
		total += b.Size
		missing += max(0, b.Size-x.s.content.Came(b.Digest))
	}
	if err := x.s.findRoom(missing); err != nil {
		return err
	}
	return x.reserve(ctx, total)
}

// findRoom makes sure that the disk has room, if need be by dropping the parts of blobs that nobody fetches now. A file
// system that cannot be asked says no when it is written to.
func (s *Service) findRoom(bytes int64) error {
	free, err := space.Free(s.root)
	if err != nil || bytes <= free {
		return nil
	}
	if err := s.content.SweepIngests(0); err != nil {
		return err
	}
	if free, err = space.Free(s.root); err != nil || bytes <= free {
		return nil
	}
	return fmt.Errorf("%d bytes are to be fetched, and the filesystem of %q has no room (%d bytes free); remove images or containers: %w",
		bytes, s.root, free, errdefs.ErrResourceExhausted)
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
