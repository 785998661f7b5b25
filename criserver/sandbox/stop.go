package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/state"
)

// Stop ends a sandbox: no more containers are started in it, end (which is given the sandbox's full
// id) ends those that run, and everything it had is removed, except its record and folders. It is
// idempotent, and an unknown id is no error.
//
// # Errors
//
// Those of the parts whose removal failed. The sandbox is NotReady then too, and Stop may be
// repeated.
func (m *Manager) Stop(ctx context.Context, id string, end func(ctx context.Context, id string) error) error {
	return m.ending(ctx, id, func(s *Sandbox, rec state.Sandbox) error { return s.stop(ctx, rec, end) })
}

// ending calls do with a sandbox, under its lock: no other request stops or removes it meanwhile.
// Without a sandbox it does nothing.
func (m *Manager) ending(ctx context.Context, id string, do func(*Sandbox, state.Sandbox) error) error {
	rec, err := m.Get(id)
	var s *Sandbox
	if err == nil {
		s, err = m.Sandbox(rec.ID)
	}
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err = s.record.get()
	if errdefs.IsNotFound(err) {
		return nil // removed while this call waited
	}
	if err != nil {
		return err
	}
	return do(s, rec)
}

func (s *Sandbox) stop(ctx context.Context, rec state.Sandbox, end func(ctx context.Context, id string) error) error {
	if rec.Phase == state.Stopped {
		return nil
	}
	if err := s.gate.close(ctx); err != nil {
		s.becomeNotReady()
		return fmt.Errorf("wait for requests in sandbox %q: %w", rec.Name(), err)
	}
	err := end(ctx, s.ID)
	// From here on parts of it are missing: a server that is killed now may find its shim and the rest.
	s.becomeNotReady()
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("end containers of sandbox %q: %w", rec.Name(), err)
		}
		// It is killed with what is left of the shim.
		s.log.Warn("failed to stop containers", "error", err)
	}
	s.shim.stopWatching()
	if err := undo(ctx, s.log, s.working()); err != nil {
		return fmt.Errorf("stop sandbox %q: %w", rec.Name(), err)
	}
	// The removal of pods is what makes room on a full disk. A server that finds the record as it
	// was finds nothing of the sandbox, and stops it again.
	unwritten, err := s.record.end(state.Stopped)
	if unwritten != nil {
		s.log.Warn("failed to record that sandbox stopped", "error", unwritten)
	}
	if err != nil {
		return fmt.Errorf("stop sandbox %q: %w", rec.Name(), err)
	}
	s.log.Info("sandbox stopped")
	return nil
}

// Remove stops a sandbox, lets remove take away its containers, and forgets it. It is idempotent,
// and no error for an id that is not there.
func (m *Manager) Remove(ctx context.Context, id string, end, remove func(ctx context.Context, id string) error) error {
	err := m.ending(ctx, id, func(s *Sandbox, rec state.Sandbox) error {
		if err := s.stop(ctx, rec, end); err != nil {
			return err
		}
		if err := remove(ctx, s.ID); err != nil {
			return fmt.Errorf("remove containers of sandbox %q: %w", rec.Name(), err)
		}
		if err := s.Folders.remove(ctx); err != nil {
			return fmt.Errorf("remove sandbox %q: %w", rec.Name(), err)
		}
		if err := s.forget(ctx); err != nil {
			return fmt.Errorf("remove sandbox %q: %w", rec.Name(), err)
		}
		m.names.Release(name(rec.Config.Value), s.ID)
		s.log.Info("sandbox removed")
		return nil
	})
	return errors.Join(err, m.records.Settle())
}
