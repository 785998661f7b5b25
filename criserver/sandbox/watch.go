package sandbox

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/durable"
)

// watch notices the death of the shim and of the pause process, until Stop or Close ends it.
func (s *Sandbox) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	s.unwatch = cancel
	shim, pause := s.shim, s.pausePID
	s.mu.Unlock()
	if shim == nil {
		return
	}
	go func() {
		select {
		case <-ctx.Done():
		case <-shim.Done():
			if ctx.Err() == nil {
				s.lost(ctx)
			}
		}
	}()
	if pause == 0 {
		return
	}
	go func() {
		_, err := shim.Wait(ctx, s.ID, "")
		if ctx.Err() != nil || errdefs.IsUnavailable(err) {
			return // told to stop watching, or the shim is gone, which is noticed by itself
		}
		s.manager.o.Logger.Warn("pause process died", "sandbox", s.ID)
		s.mu.Lock()
		s.pausePID = 0
		s.mu.Unlock()
		s.becomeNotReady()
	}()
}

func (s *Sandbox) unwatchAll() {
	s.mu.Lock()
	unwatch := s.unwatch
	s.unwatch = nil
	s.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
}

// lost cleans up after a shim that has died.
func (s *Sandbox) lost(ctx context.Context) {
	s.manager.o.Logger.Warn("shim died", "sandbox", s.ID)
	s.gate.shutNow()
	s.manager.turns <- struct{}{} // all that had the same shim are here at once
	defer func() { <-s.manager.turns }()
	ctx, cancel := Aside(ctx)
	defer cancel()
	s.detach()
	rec, err := s.record()
	if err == nil {
		err = s.releaseShim(ctx, rec)
	}
	if err != nil {
		s.manager.o.Logger.Error("failed to clean up after shim", "sandbox", s.ID, "error", err)
	}
	s.becomeNotReady()
}

// releaseShim gives the shim back, also one that has died, and tells those who wait for that. Once
// it has succeeded it does nothing more.
func (s *Sandbox) releaseShim(ctx context.Context, rec state.Sandbox) error {
	s.releasing.Lock()
	defer s.releasing.Unlock()
	defer s.markGone()
	if s.released {
		return nil
	}
	if err := s.manager.shims.Release(ctx, rec, s.takeShim()); err != nil {
		return err
	}
	s.released = true
	return nil
}

// EndContainer kills what is in a container's cgroup, without the shim, which does not answer: it
// may be there with a thread.
func (s *Sandbox) EndContainer(ctx context.Context, leaf string) error {
	rec, err := s.record()
	if err != nil {
		return err
	}
	return s.manager.o.Cgroups.End(ctx, leaf, s.manager.shims.Processes(rec, s.Shim())...)
}

func (s *Sandbox) becomeNotReady() {
	s.gate.shutNow()
	set := func(r state.Sandbox) (state.Sandbox, error) {
		if r.Phase == state.Stopped {
			return r, errStopped
		}
		r.Phase = state.NotReady
		return r, nil
	}
	_, err := s.manager.records.Update(s.ID, set)
	if durable.Full(err) { // it is not ready, whether that can be written or not
		_, err = s.manager.records.Amend(s.ID, set)
	}
	if err != nil && !errdefs.IsNotFound(err) && !errors.Is(err, errStopped) {
		s.manager.o.Logger.Error("failed to record sandbox as not ready", "sandbox", s.ID, "error", err)
	}
}

// errStopped keeps a sandbox that was stopped meanwhile as it is.
var errStopped = errors.New("sandbox is stopped")
