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
// the client did not take the output as fast as it came: the container does not wait. ErrShimDied
// if the container's shim was replaced.
func (m *Manager) Attach(ctx context.Context, id string, s Streams) error {
	r, err := m.containers.Reach(id)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	if err := m.attach(ctx, r, s); err != nil {
		return fmt.Errorf("attach to container %q: %w", r.Record.Name(), err)
	}
	return nil
}

func (m *Manager) attach(ctx context.Context, r container.Running, s Streams) error {
	ses, err := openSession(r.Bundle, attachPrefix+shortID(), s)
	if err != nil {
		return err
	}
	defer ses.close()
	config := r.Record.Config.Value
	once := config.GetStdinOnce() && !config.GetTty()
	req := client.AttachRequest{ID: r.Record.ID, Once: once}
	req.Stdin, req.Stdout, req.Stderr = ses.names("")
	before := shims(ctx, r.Shim)
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
	err = ses.last(ctx, r.Ended, detached, func() bool {
		st, err := r.Shim.State(ctx, r.Record.ID, "")
		return err == nil && st.Status == client.StatusRunning
	})
	if errors.Is(err, errOutputGone) && shims(ctx, r.Shim) != before {
		return fmt.Errorf("%w: %w", ErrShimDied, errdefs.ErrUnavailable)
	}
	return err
}

// shims counts the shims that a supervisor has started, 0 without one.
func shims(ctx context.Context, c *client.Client) int {
	h, err := c.History(ctx)
	if err != nil {
		return 0
	}
	return h.Shims
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

// ErrShimDied says that the container has another shim, which its attached clients are not
// connected with. Bytes that were on their way may be lost. Clients get its text alone.
var ErrShimDied = errors.New("the container's shim died; the container runs on under another one")

var errOutputGone = errors.New("the container's output came faster than it was taken, or the container has closed it")
