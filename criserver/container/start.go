package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/errtext"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// Start runs the process of a created container.
//
// # Errors
//
// ErrFailedPrecondition if the container is not Created or its sandbox not ready. Any other error means that it could
// not be started: it is Exited then, with reason StartError, code 128 and the error as its message.
func (m *Manager) Start(ctx context.Context, id string) error {
	_, c, err := m.find(id)
	if err != nil {
		return err
	}
	rec, end, err := c.begin("start", state.Created)
	if err != nil {
		return err
	}
	defer end()
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil {
		return fmt.Errorf("start container %q: %w", rec.ID, err)
	}
	shim, release, err := sb.Use()
	if err != nil {
		return fmt.Errorf("start container %q: %w", rec.ID, err)
	}
	defer release()

	// That it may run is durable before anybody is told, and is written while the shim works: what else is to be known of a
	// container that runs, a server that finds this record learns from the shim.
	begun := c.begins()
	pid, started, err := m.startTask(ctx, sb, shim, rec)
	err = errors.Join(err, <-begun)
	if err == nil {
		_, err = m.records.Amend(c.ID, c.mover(state.Running, func(r *state.Container) { r.PID, r.StartedAt = pid, started }))
	}
	if err != nil {
		m.dropTask(ctx, shim, rec.ID)
		if !silent(ctx, err) {
			m.vacate(ctx, shim, rec)
		}
		c.exit(ending{code: codeStartError, at: time.Now(), reason: reasonStartError, message: errtext.Of(err)})
		c.over()
		return fmt.Errorf("start container %q: %w", rec.ID, err)
	}
	go m.watch(c, sb, shim)
	go c.store()
	if rec.FromCheckpoint { // a container starts once
		if err := os.RemoveAll(m.stateDir(rec.ID)); err != nil {
			m.o.Logger.Warn("remove the state that a container began from", "container", rec.ID, "error", err)
		}
	}
	m.o.Logger.Info("container is started", "container", rec.ID, "pid", pid)
	return nil
}

// begins writes, beside the caller, that the container's process may run from now on, and says when that is durable.
func (c *Container) begins() <-chan error {
	done := make(chan error, 1)
	now := time.Now()
	go func() {
		_, err := c.manager.records.Update(c.ID, func(r state.Container) (state.Container, error) {
			r.BegunAt = now
			return r, nil
		})
		done <- err
	}()
	return done
}

// errMoved says that a container is in another state by now.
var errMoved = errors.New("it has moved on")

// store makes the record of a container durable that has just begun to run.
func (c *Container) store() {
	_, err := c.manager.records.Update(c.ID, func(r state.Container) (state.Container, error) {
		if r.Phase != state.Running {
			return r, errMoved
		}
		return r, nil
	})
	if err != nil && !errors.Is(err, errMoved) && !errdefs.IsNotFound(err) {
		c.manager.o.Logger.Error("record that a container runs", "container", c.ID, "error", err)
	}
}

// startTask makes the task in the shim and starts it. On error the task may be left. The time is that just before the
// process began: it may have ended when this returns.
func (m *Manager) startTask(ctx context.Context, sb *sandbox.Sandbox, shim *client.Client, rec state.Container) (int, time.Time, error) {
	if rec.Unstartable != "" {
		return 0, time.Time{}, fmt.Errorf("%s: %w", rec.Unstartable, errdefs.ErrInvalidArgument)
	}
	req, err := m.taskRequest(sb, rec)
	if err != nil {
		return 0, time.Time{}, err
	}
	l, err := m.launch(ctx, shim, req)
	if errdefs.IsAlreadyExists(err) {
		m.dropTask(ctx, shim, rec.ID) // left by a request whose server died
		l, err = m.launch(ctx, shim, req)
	}
	for range relaunches {
		if !errdefs.IsUnavailable(err) {
			break
		}
		l, err = m.relaunch(ctx, shim, req, err)
	}
	return l.PID, l.Begun, err
}

// relaunches is how many shims may die during the start of one container before it counts as one that cannot be started.
const relaunches = 3

// relaunch finds out what has become of a launch whose shim died before it answered, and launches anew what has not begun. A shim
// that has no successor answers as before.
func (m *Manager) relaunch(ctx context.Context, shim *client.Client, req client.CreateRequest, lost error) (client.Launched, error) {
	st, err := shim.State(ctx, req.ID, "")
	switch {
	case errdefs.IsUnavailable(err):
		return client.Launched{}, lost
	case err == nil && st.Status != client.StatusCreated:
		d, err := shim.Details(ctx, req.ID)
		return client.Launched{PID: st.PID, Begun: d.StartedAt}, err
	case err != nil && !errdefs.IsNotFound(err):
		return client.Launched{}, err
	}
	m.o.Logger.Warn("the shim has died while it started a container; it is started again", "container", req.ID)
	m.dropTask(ctx, shim, req.ID)
	return m.launch(ctx, shim, req)
}

// launch asks the shim to make a task and let it run, and returns when the shim has answered, also if the caller is gone: the
// shim goes on with what it was asked for until it hears that nobody wants it, and what began unseen would outlive its record.
func (m *Manager) launch(ctx context.Context, shim *client.Client, req client.CreateRequest) (client.Launched, error) {
	whole, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var l client.Launched
	var err error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		l, err = shim.Launch(whole, req)
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
		m.dropTask(undo, shim, req.ID)
		select {
		case <-answered:
			if err == nil {
				m.dropTask(undo, shim, req.ID)
			}
			return client.Launched{}, ctx.Err()
		case <-time.After(wait):
		}
	}
	return client.Launched{}, ctx.Err()
}

func (m *Manager) taskRequest(sb *sandbox.Sandbox, rec state.Container) (client.CreateRequest, error) {
	pod, err := m.o.Sandboxes.Get(rec.SandboxID)
	if err != nil {
		return client.CreateRequest{}, err
	}
	bundle := filepath.Join(sb.Dir, rec.ID)
	req := client.CreateRequest{
		ID: rec.ID, Bundle: bundle, Terminal: rec.Config.Value.GetTty(),
		Options: client.RuntimeOptions{BinaryName: pod.Binary, SystemdCgroup: m.o.Cgroups.Driver == cgroup.Systemd},
	}
	req.Rootfs = toShim(rec.RootFS)
	for _, v := range rec.ImageVolumes {
		req.Images = append(req.Images, client.Image{Name: strconv.Itoa(v.Mount), Mounts: toShim(v.Mounts)})
	}
	req.Stdout = stdio.Attachable
	if rec.LogPath != "" {
		if err := os.MkdirAll(filepath.Dir(rec.LogPath), 0o755); err != nil {
			return req, fmt.Errorf("make log folder: %w", err)
		}
		req.Stdout = stdio.Scheme + rec.LogPath
	}
	if !req.Terminal {
		req.Stderr = req.Stdout
	}
	if rec.FromCheckpoint {
		req.Checkpoint = m.stateDir(rec.ID)
	}
	if rec.Config.Value.GetStdin() {
		req.Stdin = stdio.Attachable
	}
	return req, nil
}

// dropTask removes a task that was not started, or whose start nobody recorded.
func (m *Manager) dropTask(ctx context.Context, shim *client.Client, id string) {
	ctx, cancel := sandbox.Aside(ctx)
	defer cancel()
	err := removeTask(ctx, shim, id)
	// A launch that nobody waits for any more may start the process between the signal and the removal, which is refused then.
	for errdefs.IsFailedPrecondition(err) && pause(ctx, 10*time.Millisecond) {
		err = removeTask(ctx, shim, id)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		m.o.Logger.Warn("remove task", "container", id, "error", err)
	}
}

// vacate ends the process that the shim has prewarmed for a container that it will not create.
func (m *Manager) vacate(ctx context.Context, shim *client.Client, rec state.Container) {
	ctx, cancel := sandbox.Aside(ctx)
	defer cancel()
	if err := shim.Vacate(ctx, rec.CgroupsPath); err != nil && !errdefs.IsNotImplemented(err) && !errdefs.IsUnavailable(err) {
		m.o.Logger.Warn("end prewarmed guest process", "container", rec.ID, "error", err)
	}
}

// vacateUnstarted is vacate for a container that never ran.
func (m *Manager) vacateUnstarted(ctx context.Context, rec state.Container) {
	if !rec.StartedAt.IsZero() {
		return
	}
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil {
		return
	}
	if shim := sb.Shim(); shim != nil {
		m.vacate(ctx, shim, rec)
	}
}

// removeTask kills a task and deletes it.
func removeTask(ctx context.Context, shim *client.Client, id string) error {
	err := shim.Kill(ctx, id, "", syscall.SIGKILL, true)
	if err == nil {
		_, err = shim.Wait(ctx, id, "")
	}
	if err == nil || errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err) {
		_, err = shim.Delete(ctx, id, "")
	}
	return err
}

// pause waits, and says whether the context still holds.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
