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

// Stop ends the process of a container: its stop signal, then, when grace has passed, SIGKILL; at
// once without grace. It returns when the container's end is durable. A container that does not
// run, or is not there, is no error. A repeated call does not send the stop signal again, and
// follows its own grace.
//
// # Errors
//
// The context's, if it ends before the container does: the container is then not killed.
func (m *Manager) Stop(ctx context.Context, id string, grace time.Duration) error {
	_, c, err := m.idempotent(id)
	if c == nil || err != nil {
		return err
	}
	// No request starts it from then on that was there before.
	rec, end, err := c.wait(ctx, "stop", state.Created, state.Running, state.Unknown, state.Exited)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	end()
	if rec.Phase != state.Running && rec.Phase != state.Unknown {
		return nil
	}
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err == nil {
		err = stopping{Container: c, sandbox: sb, rec: rec, shim: sb.Shim(), sharesPIDs: m.sharesPIDs(rec)}.run(ctx, grace)
	}
	if err != nil {
		return fmt.Errorf("stop container %q: %w", rec.Name(), err)
	}
	return nil
}

// stopping is the stop of one container.
type stopping struct {
	*Container
	sandbox    *sandbox.Sandbox
	rec        state.Container
	shim       *client.Client // nil = none, or it is silent
	sharesPIDs bool           // see Manager.sharesPIDs
}

func (s stopping) run(ctx context.Context, grace time.Duration) error {
	if s.shim == nil {
		return s.withoutShim(ctx)
	}
	if grace > 0 {
		over := time.After(grace)
		err := s.signalOnce(ctx)
		if silent(ctx, err) {
			return s.endSilent(ctx, err)
		}
		if err != nil {
			return err
		}
		select {
		case <-s.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
		}
	}
	err := s.shim.Kill(ctx, s.ID, "", syscall.SIGKILL, s.sharesPIDs)
	if silent(ctx, err) {
		return s.endSilent(ctx, err)
	}
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
		return fmt.Errorf("kill: %w", err)
	}
	return s.awaitKilled(ctx)
}

// awaitKilled waits for the end of a container that was killed. A shim that has stopped since it
// answered does not report it.
func (s stopping) awaitKilled(ctx context.Context) error {
	for {
		select {
		case <-s.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(endSilentLimit):
			if _, err := s.shim.State(ctx, s.ID, ""); silent(ctx, err) {
				return s.endSilent(ctx, err)
			}
		}
	}
}

// silent says that a call has ended because the shim did not answer in time, not because the
// request was given up.
func silent(ctx context.Context, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}

// endSilent kills a container whose shim hangs or was stopped, through its cgroup. Its end is on
// record then; should the shim come to itself, it has nothing to add.
func (s stopping) endSilent(ctx context.Context, cause error) error {
	s.log.Warn("failed to reach the shim, the container is killed without it", "error", cause)
	ctx, cancel := context.WithTimeout(ctx, endSilentLimit)
	defer cancel()
	if err := s.sandbox.EndContainer(ctx, s.rec.CgroupsPath); err != nil {
		return fmt.Errorf("kill without its shim, which does not answer: %w", err)
	}
	s.exit(ending{code: codeKilled, at: time.Now(), reason: reasonError, message: "its shim did not answer, and it was killed without it"})
	s.over()
	return nil
}

// endSilentLimit is how long killed processes may take to end.
const endSilentLimit = 10 * time.Second

// codeKilled is that of a process that SIGKILL ended.
const codeKilled = 128 + int32(syscall.SIGKILL)

// withoutShim waits for a shim's remains to be cleaned up, which ends the container; one whose shim
// is only silent is ended without it.
func (s stopping) withoutShim(ctx context.Context) error {
	select {
	case <-s.sandbox.Cleaned():
	default:
		if now, err := s.records.Get(s.ID); err == nil && now.Phase == state.Unknown {
			return s.endSilent(ctx, fmt.Errorf("no connection to the shim: %w", errdefs.ErrUnavailable))
		}
	}
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// signalOnce sends the stop signal if nobody has yet, and remembers that, also for the next server.
func (s stopping) signalOnce(ctx context.Context) error {
	select {
	case <-s.signal:
		defer func() { s.signal <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	rec, err := s.records.Get(s.ID)
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
		if d, err := s.shim.Details(ctx, s.ID); err != nil || slices.Contains(d.Told, int(sig)) {
			return err
		}
		return s.shim.Kill(ctx, s.ID, "", sig, false)
	}
	if err = tell(ctx); errdefs.IsUnavailable(err) {
		err = tell(ctx) // the shim died before it answered, and may have a successor
	}
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsUnavailable(err) {
		return fmt.Errorf("send %s: %w", rec.StopSignal, err)
	}
	if _, err := s.records.Note(s.ID, func(r state.Container) (state.Container, error) {
		r.StopSent = time.Now()
		return r, nil
	}); err != nil && !errdefs.IsNotFound(err) {
		s.log.Error("failed to record the stop signal", "error", err)
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
