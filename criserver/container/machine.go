package container

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/state"
)

// Container is the living side of a container.
type Container struct {
	ID, SandboxID string
	name          string // for errors, also of one that has just been removed

	records *state.Store[state.Container]
	log     *slog.Logger
	ended   chan struct{} // closed once the status says Exited, durably
	endOnce sync.Once
	work    chan struct{} // holds one token; who takes it changes the container
	signal  chan struct{} // holds one token; who takes it may send the stop signal
	mu      sync.Mutex
	doing   string        // what the holder of work does
	deleted chan struct{} // closed once the shim has no task of the ended container any more; nil = nobody deletes one

	unwanted  chan struct{} // closed once the task need not be kept until the end is recorded
	unwanting sync.Once
}

func newContainer(records *state.Store[state.Container], rec state.Container, log *slog.Logger) *Container {
	c := &Container{
		ID: rec.ID, SandboxID: rec.SandboxID, name: rec.Name(), records: records, log: log.With("container", rec.ID),
		ended: make(chan struct{}), work: make(chan struct{}, 1), signal: make(chan struct{}, 1), unwanted: make(chan struct{}),
	}
	c.work <- struct{}{}
	c.signal <- struct{}{}
	return c
}

// moves are the only changes of state that there are; see the package comment.
func moves(from, to state.Phase) bool {
	switch from {
	case state.Creating:
		return to == state.Created
	case state.Created:
		return to == state.Running || to == state.Exited
	case state.Running:
		return to == state.Exited || to == state.Unknown
	case state.Unknown:
		return to == state.Running || to == state.Exited
	}
	return false
}

// move changes the state of a container and whatever else change sets with it, durably.
//
// # Errors
//
// ErrFailedPrecondition if there is no such move from the present state.
func (c *Container) move(to state.Phase, change func(*state.Container)) (state.Container, error) {
	return c.records.Update(c.ID, c.mover(to, change))
}

func (c *Container) mover(to state.Phase, change func(*state.Container)) func(state.Container) (state.Container, error) {
	return func(r state.Container) (state.Container, error) {
		if !moves(r.Phase, to) {
			return r, fmt.Errorf("container %q is %s and cannot become %s: %w", r.Name(), r.Phase, to, errdefs.ErrFailedPrecondition)
		}
		r.Phase = to
		change(&r)
		return r, nil
	}
}

// claim takes the right to change the container for one request, which must find it in one of the
// given states.
//
// # Errors
//
// ErrFailedPrecondition if another request is at it, or the state is another; ErrNotFound if it was
// removed.
func (c *Container) claim(doing string, in ...state.Phase) (rec state.Container, end func(), err error) {
	select {
	case <-c.work:
	default:
		return rec, nil, fmt.Errorf("%s container %q: a request to %s it is in progress: %w", doing, c.name, c.does(), errdefs.ErrFailedPrecondition)
	}
	return c.claimed(doing, in)
}

// wait is claim for requests that wait until the other one is through.
func (c *Container) wait(ctx context.Context, doing string, in ...state.Phase) (rec state.Container, end func(), err error) {
	select {
	case <-c.work:
		return c.claimed(doing, in)
	case <-ctx.Done():
		return rec, nil, fmt.Errorf("%s container %q: wait for another request to finish: %w", doing, c.name, ctx.Err())
	}
}

func (c *Container) claimed(doing string, in []state.Phase) (rec state.Container, end func(), err error) {
	c.mu.Lock()
	c.doing = doing
	c.mu.Unlock()
	end = sync.OnceFunc(func() { c.work <- struct{}{} })
	if rec, err = c.records.Get(c.ID); err == nil && !slices.Contains(in, rec.Phase) {
		err = fmt.Errorf("%s container %q: it is %s: %w", doing, rec.Name(), rec.Phase, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		end()
		return rec, nil, err
	}
	return rec, end, nil
}

func (c *Container) does() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doing
}

// ending is how a container ended, in the words of the CRI.
type ending struct {
	code    int32
	at      time.Time
	reason  string
	message string
}

// Reasons of an end, which the kubelet and its users know by these names.
const (
	reasonCompleted  = "Completed"
	reasonError      = "Error"
	reasonOOMKilled  = "OOMKilled"
	reasonStartError = "StartError"
	reasonUnknown    = "Unknown"
)

const (
	codeStartError = 128
	codeUnknown    = 255
)

// exit makes the end of a container durable. If the disk refuses, the end holds in memory, and
// written is closed once the disk has taken it: it must be known, or the container would never be
// seen to end. written is nil where nothing is left to be written.
func (c *Container) exit(e ending) (written <-chan struct{}) {
	written, refused, err := c.records.Insist(c.ID, true, c.mover(state.Exited, func(r *state.Container) {
		r.ExitCode, r.FinishedAt, r.Reason, r.Message = e.code, e.at, e.reason, e.message
		switch {
		case !r.StartedAt.IsZero():
		case r.StartAttemptedAt.IsZero() || e.reason == reasonStartError:
			r.StartedAt = e.at // it never started: both times are the same
		default:
			r.StartedAt = r.StartAttemptedAt
		}
		if e.at.Before(r.StartedAt) { // the clock was set back, and clients count from the end
			r.StartedAt = e.at
		}
	}))
	if refused != nil {
		c.log.Error("failed to record the end of a container, it is recorded once the disk takes it", "error", refused)
	}
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) { // removed, or ended already
		c.log.Error("failed to keep the end of a container", "error", err)
	}
	return written
}

// over tells those who wait for the end.
func (c *Container) over() { c.endOnce.Do(func() { close(c.ended) }) }

// deleting says that the task of the container is being deleted, until done is called.
func (c *Container) deleting() (done func()) {
	deleted := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted = deleted
	return func() { close(deleted) }
}

// awaitDeleted waits for the shim to delete the task of a container that has ended, with its cgroup
// and mounts, also if the disk has not taken the end.
func (c *Container) awaitDeleted(ctx context.Context) error {
	c.unwanting.Do(func() { close(c.unwanted) })
	c.mu.Lock()
	deleted := c.deleted
	c.mu.Unlock()
	if deleted == nil {
		return nil
	}
	select {
	case <-deleted:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
