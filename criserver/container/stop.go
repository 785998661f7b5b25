package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Stop ends the process of a container: its stop signal, then, when grace has passed, SIGKILL; at once without grace. It
// returns when the container's end is durable. A container that does not run, or is not there, is no error. A
// repeated call does not send the stop signal again, and follows its own grace.
//
// # Errors
//
// The context's, if it ends before the container does: the container is then not killed.
func (m *Manager) Stop(ctx context.Context, id string, grace time.Duration) error {
	_, c, err := m.idempotent(id)
	if c == nil || err != nil {
		return err
	}
	if err := c.settled(ctx); err != nil {
		return err
	}
	rec, err := m.records.Get(c.ID)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if rec.Phase != state.Running && rec.Phase != state.Unknown {
		return nil
	}
	if err := m.stop(ctx, c, rec, grace); err != nil {
		return fmt.Errorf("stop container %q: %w", c.ID, err)
	}
	return nil
}

// settled waits until no request starts the container.
func (c *Container) settled(ctx context.Context) error {
	_, end, err := c.wait(ctx, "stop", state.Created, state.Running, state.Unknown, state.Exited)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	end()
	return nil
}

func (m *Manager) stop(ctx context.Context, c *Container, rec state.Container, grace time.Duration) error {
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil {
		return err
	}
	shim := sb.Shim()
	if shim == nil {
		return m.stopWithoutShim(ctx, c, sb, rec)
	}
	if grace > 0 {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		err := m.signalOnce(ctx, c, shim)
		if silent(ctx, err) {
			return m.endSilent(ctx, c, sb, rec, err)
		}
		if err != nil {
			return err
		}
		select {
		case <-c.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	err = shim.Kill(ctx, c.ID, "", syscall.SIGKILL, m.sharesPIDs(rec))
	if silent(ctx, err) {
		return m.endSilent(ctx, c, sb, rec, err)
	}
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
		return fmt.Errorf("kill: %w", err)
	}
	return m.awaitKilled(ctx, c, sb, rec, shim)
}

// awaitKilled waits for the end of a container that was killed. A shim that has stopped since it answered tells nobody of it.
func (m *Manager) awaitKilled(ctx context.Context, c *Container, sb *sandbox.Sandbox, rec state.Container, shim *client.Client) error {
	for {
		select {
		case <-c.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(endSilentLimit):
			if _, err := shim.State(ctx, c.ID, ""); silent(ctx, err) {
				return m.endSilent(ctx, c, sb, rec, err)
			}
		}
	}
}

// silent says that a call has ended because the shim did not answer in time, not because the request was given up.
func silent(ctx context.Context, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}

// endSilent kills a container whose shim hangs or was stopped, through its cgroup. Its end is on record then; should the shim
// come to itself, it has nothing to add.
func (m *Manager) endSilent(ctx context.Context, c *Container, sb *sandbox.Sandbox, rec state.Container, cause error) error {
	m.o.Logger.Warn("shim does not answer; the container is killed without it", "container", c.ID, "error", cause)
	ctx, cancel := context.WithTimeout(ctx, endSilentLimit)
	defer cancel()
	if err := sb.EndContainer(ctx, rec.CgroupsPath); err != nil {
		return fmt.Errorf("kill without its shim, which does not answer: %w", err)
	}
	c.exit(ending{code: codeKilled, at: time.Now(), reason: reasonError, message: "its shim did not answer, and it was killed without it"})
	c.over()
	return nil
}

// endSilentLimit is how long killed processes may take to end.
const endSilentLimit = 10 * time.Second

// codeKilled is that of a process that SIGKILL ended.
const codeKilled = 128 + int32(syscall.SIGKILL)

// stopWithoutShim waits for a shim's remains to be cleaned up, which ends the container; one whose shim is only silent
// is ended without it.
func (m *Manager) stopWithoutShim(ctx context.Context, c *Container, sb *sandbox.Sandbox, rec state.Container) error {
	select {
	case <-sb.Gone():
	default:
		if now, err := m.records.Get(c.ID); err == nil && now.Phase == state.Unknown {
			return m.endSilent(ctx, c, sb, rec, fmt.Errorf("there is no connection to it: %w", errdefs.ErrUnavailable))
		}
	}
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// signalOnce sends the stop signal if nobody has yet, and remembers that, also for the next server.
func (m *Manager) signalOnce(ctx context.Context, c *Container, shim *client.Client) error {
	select {
	case <-c.signal:
		defer func() { c.signal <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	rec, err := m.records.Get(c.ID)
	if errdefs.IsNotFound(err) || err == nil && !rec.StopSent.IsZero() {
		return nil
	}
	if err != nil {
		return err
	}
	sig, err := parseSignal(rec.StopSignal)
	if err != nil {
		sig = syscall.SIGTERM
	}
	tell := func(ctx context.Context) error {
		// A server that died after sending it could not record that; the shim knows.
		if d, err := shim.Details(ctx, c.ID); err != nil || slices.Contains(d.Told, int(sig)) {
			return err
		}
		return shim.Kill(ctx, c.ID, "", sig, false)
	}
	if err = tell(ctx); errdefs.IsUnavailable(err) {
		err = tell(ctx) // the shim died before it answered, and may have a successor
	}
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
		return fmt.Errorf("send %s: %w", rec.StopSignal, err)
	}
	if _, err := m.records.Update(c.ID, func(r state.Container) (state.Container, error) {
		r.StopSent = time.Now()
		return r, nil
	}); err != nil && !errdefs.IsNotFound(err) {
		m.o.Logger.Error("record the stop signal", "container", c.ID, "error", err)
	}
	return nil
}

// sharesPIDs says that the end of a container's first process does not end the others.
func (m *Manager) sharesPIDs(rec state.Container) bool {
	pod, err := m.o.Sandboxes.Get(rec.SandboxID)
	if err != nil {
		return true
	}
	_, _, pid := spec.Modes(rec.Config.Value, pod.Config.Value)
	return pid != runtime.NamespaceMode_CONTAINER
}

// Remove takes a container away; one that runs is killed first. It is no error if it is not there. The log file stays: it
// is the client's.
//
// # Errors
//
// ErrFailedPrecondition if it is being started or removed by another request.
func (m *Manager) Remove(ctx context.Context, id string) error {
	rec, c, err := m.idempotent(id)
	if c == nil || err != nil {
		return err
	}
	if rec.Phase == state.Running || rec.Phase == state.Unknown {
		if err := m.Stop(ctx, rec.ID, 0); err != nil {
			return err
		}
	}
	rec, end, err := c.begin("remove", state.Created, state.Exited)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer end()
	if err := c.awaitDeleted(ctx); err != nil {
		return fmt.Errorf("remove container %q: %w", rec.ID, err)
	}
	pod, perr := m.o.Sandboxes.Get(rec.SandboxID)
	if err := m.forget(ctx, c, rec); err != nil {
		return fmt.Errorf("remove container %q: %w", rec.ID, err)
	}
	if perr == nil {
		m.names.Release(name(rec.Config.Value, pod.Config.Value), rec.ID)
	}
	m.o.Logger.Info("container is removed", "container", rec.ID)
	return nil
}

// killLimit is how long killed containers are waited for before their shim is killed with them.
const killLimit = 30 * time.Second

// StopAll kills every running container of a sandbox, and waits until their tasks are deleted; see sandbox.Manager.Stop.
func (m *Manager) StopAll(ctx context.Context, sandboxID string) error {
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	return m.each(sandboxID, func(rec state.Container) error {
		c := m.alive(rec.ID)
		if c != nil && rec.Phase == state.Created {
			m.vacateUnstarted(ctx, rec) // the shim may have other pods
		}
		if err := m.Stop(ctx, rec.ID, 0); err != nil || c == nil {
			return err
		}
		return c.awaitDeleted(ctx)
	})
}

// RemoveAll removes every container of a sandbox; see sandbox.Manager.Remove.
func (m *Manager) RemoveAll(ctx context.Context, sandboxID string) error {
	return m.each(sandboxID, func(rec state.Container) error { return m.Remove(ctx, rec.ID) })
}

// each calls f for the containers of a sandbox side by side.
func (m *Manager) each(sandboxID string, f func(state.Container) error) error {
	recs := m.In(sandboxID)
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
