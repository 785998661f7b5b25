package container

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/space"
)

// Remove takes a container away; one that runs, or that another request starts, is killed first. It
// is no error if it is not there, or if another request removes it. The log file stays: it is the
// client's.
//
// # Errors
//
// ErrFailedPrecondition if it is started after it was killed.
func (m *Manager) Remove(ctx context.Context, id string) error {
	return errors.Join(m.remove(ctx, id), m.records.Settle())
}

// remove is Remove, which a power cut may take back until the records are settled.
func (m *Manager) remove(ctx context.Context, id string) error {
	rec, c, err := m.idempotent(id)
	if c == nil || err != nil {
		return err
	}
	if err := m.Stop(ctx, rec.ID, 0); err != nil {
		return err
	}
	rec, end, err := c.wait(ctx, "remove", state.Created, state.Exited)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer end()
	if err := c.awaitDeleted(ctx); err != nil {
		return fmt.Errorf("remove container %q: %w", rec.Name(), err)
	}
	pod, perr := m.o.Sandboxes.Get(rec.SandboxID)
	if err := m.forget(ctx, c, rec); err != nil {
		return fmt.Errorf("remove container %q: %w", rec.Name(), err)
	}
	if perr == nil {
		m.names.Release(name(rec.Config.Value, pod.Config.Value), rec.ID)
	}
	m.o.Logger.Info("container removed", "container", rec.ID)
	return nil
}

// killLimit is how long killed containers are waited for before their shim is killed with them.
const killLimit = 30 * time.Second

// StopAll kills every running container of a sandbox, and waits until their tasks are deleted; see
// sandbox.Manager.Stop.
func (m *Manager) StopAll(ctx context.Context, sandboxID string) error {
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	return each(m.In(sandboxID), func(rec state.Container) error {
		c := m.alive(rec.ID)
		if err := m.Stop(ctx, rec.ID, 0); err != nil || c == nil {
			return err
		}
		return c.awaitDeleted(ctx)
	})
}

// RemoveAll removes every container of a sandbox in which no request makes one; see
// sandbox.Manager.Remove. A power cut may take that back, until the sandbox's removal is durable: a
// start of the server removes containers without a sandbox.
func (m *Manager) RemoveAll(ctx context.Context, sandboxID string) error {
	err := each(m.In(sandboxID), func(rec state.Container) error { return m.remove(ctx, rec.ID) })
	for _, rec := range m.records.Select(func(rec *state.Container) bool { return rec.SandboxID == sandboxID && rec.Phase == state.Creating }) {
		if c := m.alive(rec.ID); c != nil { // it was not undone
			err = errors.Join(err, m.forget(ctx, c, rec))
		}
	}
	return err
}

// Removed is told that the removal of a sandbox is durable: so is that of its containers.
func (m *Manager) Removed(sandboxID string) {
	m.records.Tell(func(rec *state.Container) bool { return rec.SandboxID == sandboxID })
}

// each calls f for containers side by side.
func each(recs []state.Container, f func(state.Container) error) error {
	errs := make(chan error, len(recs))
	for _, rec := range recs {
		go func() { errs <- f(rec) }()
	}
	var all []error
	for range recs {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// forget removes everything of a container that does not run: its bundle first, its record last.
// From that order a server that starts knows what the one before it had started to remove. A power
// cut may bring the record back until the records are settled.
func (m *Manager) forget(ctx context.Context, c *Container, rec state.Container) error {
	var errs []error
	if sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID); err == nil {
		if shim := sb.Shim(); rec.StartedAt.IsZero() && shim != nil {
			c.task(shim).vacate(ctx, rec.CgroupsPath) // the prewarmed process
		}
		errs = append(errs, sb.RemoveBundle(rec.ID))
	}
	for _, key := range rec.Keys() {
		err := m.o.Images.RemoveRootFS(ctx, key)
		if durable.Full(err) { // the next start removes its record as an orphan's; what it held is released
			m.o.Logger.Warn("failed to remove root filesystem", "container", rec.ID, "key", key, "error", err)
			continue
		}
		if err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove root filesystem %q: %w", key, err))
		}
	}
	errs = append(errs, space.Remove(m.volumes.of(rec.ID)))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := m.records.Drop(rec.ID); err != nil {
		return err
	}
	m.o.Labels.Release(rec.ProcessLabel)
	m.drop(c.ID)
	return nil
}
