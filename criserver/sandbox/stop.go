package sandbox

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/durable"
)

// Stop ends a sandbox: no more containers are started in it, end (which is given the sandbox's full id) ends those that
// run, and everything it had is undone but its record and folders. It is idempotent, and no error for an id that
// is not there.
//
// # Errors
//
// What could not be undone; the sandbox is NotReady then too, and Stop may be called again.
func (m *Manager) Stop(ctx context.Context, id string, end func(ctx context.Context, id string) error) error {
	s, err := m.living(id)
	if s == nil || err != nil {
		return err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return s.stop(ctx, end)
}

// living finds a sandbox to stop; nil if there is none.
func (m *Manager) living(id string) (*Sandbox, error) {
	rec, err := m.Get(id)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := m.Sandbox(rec.ID)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	return s, err
}

func (s *Sandbox) stop(ctx context.Context, end func(ctx context.Context, id string) error) error {
	rec, err := s.record()
	if errdefs.IsNotFound(err) {
		return nil // removed while this call waited
	}
	if err != nil {
		return err
	}
	if rec.Phase == state.Stopped {
		return nil
	}
	if err := s.gate.close(ctx); err != nil {
		s.becomeNotReady()
		return fmt.Errorf("wait for requests in sandbox %q: %w", s.ID, err)
	}
	if err := end(ctx, s.ID); err != nil {
		if ctx.Err() != nil {
			s.becomeNotReady()
			return fmt.Errorf("end containers of sandbox %q: %w", s.ID, err)
		}
		// It is killed with what is left of the shim.
		s.manager.o.Logger.Warn("failed to stop containers", "sandbox", s.ID, "error", err)
	}
	s.unwatchAll()
	if err := undo(ctx, s.manager.o.Logger.With("sandbox", s.ID), s.working()); err != nil {
		s.becomeNotReady()
		return fmt.Errorf("stop sandbox %q: %w", s.ID, err)
	}
	if err := s.recordStopped(); err != nil {
		return fmt.Errorf("stop sandbox %q: %w", s.ID, err)
	}
	s.manager.o.Logger.Info("sandbox stopped", "sandbox", s.ID)
	return nil
}

// recordStopped records that a sandbox has nothing any more. On a full disk that stands for as long as this server lives: the
// removal of pods is what makes room, and a server that finds the record as it was finds nothing of the sandbox, and stops it
// again.
func (s *Sandbox) recordStopped() error {
	set := func(r state.Sandbox) (state.Sandbox, error) {
		r.Phase = state.Stopped
		return r, nil
	}
	_, err := s.manager.records.Update(s.ID, set)
	if durable.Full(err) {
		s.manager.o.Logger.Warn("failed to record that sandbox stopped", "sandbox", s.ID, "error", err)
		_, err = s.manager.records.Amend(s.ID, set)
	}
	return err
}

// Remove stops a sandbox, lets remove take away its containers, and forgets it. It is idempotent, and no error for an id
// that is not there.
func (m *Manager) Remove(ctx context.Context, id string, end, remove func(ctx context.Context, id string) error) error {
	s, err := m.living(id)
	if s == nil || err != nil {
		return err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := s.record()
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.stop(ctx, end); err != nil {
		return err
	}
	if err := remove(ctx, s.ID); err != nil {
		return fmt.Errorf("remove containers of sandbox %q: %w", s.ID, err)
	}
	if err := s.removeFolders(ctx); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", s.ID, err)
	}
	if err := s.forget(ctx); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", s.ID, err)
	}
	m.names.Release(name(rec.Config.Value), s.ID)
	m.o.Logger.Info("sandbox removed", "sandbox", s.ID)
	return nil
}
