package images

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/images/store"
	"github.com/sunaba-project/sunaba/images/unpack"
)

// strayAge is how long what nobody has brought with an image is kept after its last use: modules that containers name
// instead of their image's command, that are run by exec or by hand.
const strayAge = 24 * time.Hour

// moduleUse says of modules that pulls hold them, or that they are departing.
type moduleUse struct {
	mu      sync.Mutex
	held    map[digest.Digest]int
	leaving map[digest.Digest]chan struct{}
}

// hold keeps a module from departing until release is called. One that is on its way out is gone when hold returns.
func (u *moduleUse) hold(ctx context.Context, d digest.Digest) (release func(), err error) {
	u.mu.Lock()
	for u.leaving[d] != nil {
		gone := u.leaving[d]
		u.mu.Unlock()
		select {
		case <-gone:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		u.mu.Lock()
	}
	defer u.mu.Unlock()
	if u.held == nil {
		u.held = make(map[digest.Digest]int)
	}
	u.held[d]++
	return sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.held[d]--; u.held[d] == 0 {
			delete(u.held, d)
		}
	}), nil
}

// isHeld says whether a pull holds a module.
func (u *moduleUse) isHeld(d digest.Digest) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.held[d] > 0
}

// leave marks a module as departing until done is called. false: a pull holds it, or it is departing already.
func (u *moduleUse) leave(d digest.Digest) (done func(), ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held[d] > 0 || u.leaving[d] != nil {
		return nil, false
	}
	if u.leaving == nil {
		u.leaving = make(map[digest.Digest]chan struct{})
	}
	gone := make(chan struct{})
	u.leaving[d] = gone
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.leaving, d)
		close(gone)
	}, true
}

// hold keeps modules from departing until the session is closed.
func (x *session) hold(ctx context.Context, modules ...digest.Digest) error {
	for _, d := range modules {
		release, err := x.s.modules.hold(ctx, d)
		if err != nil {
			return err
		}
		x.unpin = append(x.unpin, release)
	}
	return nil
}

// setPrepared writes down that there may be something to be removed when a module departs, or that there is not.
func (s *Service) setPrepared(d digest.Digest, is bool) error {
	if s.db.State().Prepared[d.String()] == is {
		return nil
	}
	err := s.db.Update(func(st *store.Tx) error { st.SetPrepared(d, is); return nil })
	if err != nil {
		return fmt.Errorf("record module %s: %w", d, err)
	}
	return nil
}

// programs returns the modules that images and containers run.
func programs(st *store.State, roots []unpack.Root) map[digest.Digest]bool {
	all := make(map[digest.Digest]bool)
	for _, img := range st.Images {
		for _, d := range img.Modules() {
			all[d] = true
		}
	}
	for _, r := range roots {
		all[digest.Digest(r.Labels[labelModule])] = true
		all[digest.Digest(r.Labels[labelProgram])] = true
	}
	return all
}

// departUnneeded tells Options.Departed about the modules that no image, no container and no pull needs. What is not
// done, because of an error or because this process ends, is on record and done by the next sweep.
func (s *Service) departUnneeded(ctx context.Context) error {
	if s.departed == nil || len(s.db.State().Prepared) == 0 {
		return nil
	}
	return s.depart(ctx, func(programs map[digest.Digest]bool) ([]digest.Digest, error) {
		var gone []digest.Digest
		for d := range maps.Keys(s.db.State().Prepared) {
			if !programs[digest.Digest(d)] {
				gone = append(gone, digest.Digest(d))
			}
		}
		return gone, nil
	})
}

// dropStray does so about what is kept of modules that no image has brought.
func (s *Service) dropStray(ctx context.Context) error {
	if s.departed == nil {
		return nil
	}
	return s.depart(ctx, func(programs map[digest.Digest]bool) ([]digest.Digest, error) {
		stray, err := s.stray(ctx, programs)
		var gone []digest.Digest
		for _, p := range stray {
			gone = append(gone, p.Digest)
		}
		return gone, err
	})
}

// depart has the modules that choose returns departed. While it is decided no image, no root and no hold can come.
func (s *Service) depart(ctx context.Context, choose func(programs map[digest.Digest]bool) ([]digest.Digest, error)) error {
	leaving, err := s.choose(ctx, choose)
	for d, done := range leaving {
		err := s.departed(ctx, d.String())
		s.setModuleKnown(d, false)
		if err == nil {
			err = s.setPrepared(d, false)
		}
		done()
		if err != nil {
			s.logger.Warn("failed to remove compiled module, it stays until the next garbage collection", "module", d, "error", err)
		}
	}
	return err
}

func (s *Service) choose(ctx context.Context, choose func(map[digest.Digest]bool) ([]digest.Digest, error)) (map[digest.Digest]func(), error) {
	s.gc.Lock()
	defer s.gc.Unlock()
	roots, err := s.layers.Roots(ctx)
	if err != nil {
		return nil, err
	}
	gone, err := choose(programs(s.db.State(), roots))
	leaving := make(map[digest.Digest]func())
	for _, d := range gone {
		if done, ok := s.modules.leave(d); ok {
			leaving[d] = done
		}
	}
	return leaving, err
}

// stray returns what is kept of modules that no image, no container and no pull needs, that nobody runs and that has not
// been used for a day, by digest. What departs by itself is among it.
func (s *Service) stray(ctx context.Context, programs map[digest.Digest]bool) ([]Prepared, error) {
	if s.prepared == nil {
		return nil, nil
	}
	all, err := s.prepared(ctx)
	if err != nil {
		return nil, errors.Join(errors.New("look for compiled modules that nothing needs"), err)
	}
	brought := s.db.State().Prepared
	return slices.DeleteFunc(all, func(p Prepared) bool {
		return s.modules.isHeld(p.Digest) || !isStray(p, programs, brought[p.Digest.String()])
	}), nil
}

// isStray says whether nothing needs what is kept of a module. brought says that it came with an image: then it goes at
// once with the last one, and not after a day.
func isStray(p Prepared, programs map[digest.Digest]bool, brought bool) bool {
	young := p.Running || time.Since(p.Used) < strayAge
	return !programs[p.Digest] && (brought || !young)
}
