package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Attach lets a client take part in a running container until the container ends, the client
// leaves, or its input ends; the last not if the container's input ends with it (stdin_once).
//
// # Errors
//
// ErrNotFound, ErrFailedPrecondition if the container does not run, the context's. ErrAborted if
// the client did not take the output as fast as it came: the container does not wait.
func (m *Manager) Attach(ctx context.Context, id string, s Streams) error {
	r, err := m.containers.Reach(id)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	if err := m.attach(ctx, r, s); err != nil {
		return fmt.Errorf("attach to container %q: %w", r.Record.ID, err)
	}
	return nil
}

func (m *Manager) attach(ctx context.Context, r container.Running, s Streams) error {
	name, err := shortID()
	if err != nil {
		return err
	}
	ses, err := openSession(r.Bundle, attachPrefix+name, s)
	if err != nil {
		return err
	}
	defer ses.close()
	config := r.Record.Config.Value
	once := config.GetStdinOnce() && !config.GetTty()
	req := client.AttachRequest{ID: r.Record.ID, Once: once}
	req.Stdin, req.Stdout, req.Stderr = ses.names("")
	if err := r.Shim.Attach(ctx, req); err != nil {
		return err
	}
	ses.taken()
	var resize func(width, height uint16)
	if config.GetTty() {
		resize = func(w, h uint16) { _ = r.Shim.ResizePty(m.ctx, r.Record.ID, "", uint32(w), uint32(h)) } // it may have ended
	}
	ses.copy(resize)
	var detached <-chan struct{}
	if config.GetStdin() && (!once || len(ses.outlets()) == 0) {
		detached = ses.stdinDone
	}
	return ses.last(ctx, r.Ended, detached, func() bool {
		st, err := r.Shim.State(ctx, r.Record.ID, "")
		return err == nil && st.Status == client.StatusRunning
	})
}

// last waits for the end of an attached client's part. runs says whether the container does, as far
// as its shim knows.
func (s *session) last(ctx context.Context, ended, detached <-chan struct{}, runs func() bool) error {
	output := s.outDone
	if len(s.outlets()) == 0 {
		output = nil
	}
	select {
	case <-ended:
		s.drain(ctx)
		return nil
	case <-detached:
		return nil
	case <-output:
	case <-ctx.Done():
		return fmt.Errorf("the client has left: %w", ctx.Err())
	}
	for _, patience := range []time.Duration{drainLimit, endLimit} {
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("the client has left: %w", ctx.Err())
		case <-time.After(patience):
		}
		if runs() {
			break
		}
	}
	return fmt.Errorf("%w: %w", errOutputGone, errdefs.ErrAborted)
}

// endLimit is how long the end of a container that runs no more may take to be on record: a busy
// machine took more than drainLimit.
const endLimit = 15 * time.Second

var errOutputGone = errors.New("the container's output came faster than it was taken, or the container has closed it")
