package container

import (
	"context"
	"log/slog"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/host/clock"
	"github.com/sunaba-project/sunaba/shim/client"
)

// task is what the shim of a sandbox has of one container.
type task struct {
	shim *client.Client
	id   string
	log  *slog.Logger
}

// task is the container's task in a shim.
func (c *Container) task(shim *client.Client) task { return task{shim: shim, id: c.ID, log: c.log} }

// start makes the task in the shim and starts it. On error the task may be left. The time is that
// just before the process started: it may have ended when this returns.
func (t task) start(ctx context.Context, req client.CreateRequest) (client.Launched, error) {
	l, err := t.launch(ctx, req)
	if errdefs.IsAlreadyExists(err) {
		t.drop(ctx) // left by a request whose server died
		l, err = t.launch(ctx, req)
	}
	for range relaunches {
		if !errdefs.IsUnavailable(err) {
			break
		}
		l, err = t.relaunch(ctx, req, err)
	}
	return l, err
}

// relaunches is how many shims may die during the start of one container before it counts as one
// that cannot be started.
const relaunches = 3

// relaunch finds out what has happened to a launch whose shim died before it answered, and launches
// again what has not started. A shim that has no successor answers as before.
func (t task) relaunch(ctx context.Context, req client.CreateRequest, lost error) (client.Launched, error) {
	st, err := t.shim.State(ctx, req.ID, "")
	switch {
	case errdefs.IsUnavailable(err):
		return client.Launched{}, lost
	case err == nil && st.Status != client.StatusCreated:
		d, err := t.shim.Details(ctx, req.ID)
		return client.Launched{PID: st.PID, StartedAt: d.StartedAt}, err
	case err != nil && !errdefs.IsNotFound(err):
		return client.Launched{}, err
	}
	t.log.Warn("shim died while it started a container; starting it again")
	t.drop(ctx)
	return t.launch(ctx, req)
}

// launch asks the shim to make a task and let it run, and returns when the shim has answered, also
// if the caller has left: the shim continues until it hears that the task is
// not wanted, and what started unseen would outlive its record.
func (t task) launch(ctx context.Context, req client.CreateRequest) (client.Launched, error) {
	whole, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var l client.Launched
	var err error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		l, err = t.shim.Launch(whole, req)
	}()
	select {
	case <-answered:
		return l, err
	case <-ctx.Done():
	}
	undo, done := sandbox.Aside(ctx)
	defer done()
	// The shim may hear of the removal before it has looked at the launch: that is told again.
	for wait := 10 * time.Millisecond; undo.Err() == nil; wait = min(2*wait, time.Second) {
		t.drop(undo)
		select {
		case <-answered:
			if err == nil {
				t.drop(undo)
			}
			return client.Launched{}, ctx.Err()
		case <-time.After(wait):
		}
	}
	return client.Launched{}, ctx.Err()
}

// drop removes a task that was not started, or whose start nobody recorded.
func (t task) drop(ctx context.Context) {
	ctx, cancel := sandbox.Aside(ctx)
	defer cancel()
	err := t.shim.Remove(ctx, t.id)
	// A launch whose caller has left may start the process between the signal and the
	// removal, which is refused then. A disk that is read-only refuses it for longer.
	for wait := 10 * time.Millisecond; errdefs.IsFailedPrecondition(err) && wait < time.Second && clock.Sleep(ctx, wait) == nil; wait *= 2 {
		err = t.shim.Remove(ctx, t.id)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		t.log.Warn("failed to remove task", "error", err)
	}
}

// vacate ends the process that the shim has prewarmed for a container that it will not create.
func (t task) vacate(ctx context.Context, cgroupsPath string) {
	ctx, cancel := sandbox.Aside(ctx)
	defer cancel()
	if err := t.shim.Vacate(ctx, cgroupsPath); err != nil && !errdefs.IsUnavailable(err) {
		t.log.Warn("failed to end prewarmed guest process", "error", err)
	}
}
