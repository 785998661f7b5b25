package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/errtext"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// Start runs the process of a created container.
//
// # Errors
//
// ErrFailedPrecondition if the container is not Created or its sandbox not ready. Any other error
// means that it failed to start: it is Exited then, with reason StartError, code 128 and the
// error as its message. So it is where ctx ends, as with containerd.
func (m *Manager) Start(ctx context.Context, id string) (err error) {
	_, c, err := m.find(id)
	if err != nil {
		return err
	}
	rec, end, err := c.claim("start", state.Created)
	if err != nil {
		return err
	}
	defer end()
	defer func(at time.Time) { m.tellStart(rec, at, err) }(time.Now())
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil {
		return fmt.Errorf("start container %q: %w", rec.Config.Value.GetMetadata().GetName(), err)
	}
	shim, release, err := sb.Use()
	if err != nil {
		return fmt.Errorf("start container %q: %w", rec.Config.Value.GetMetadata().GetName(), err)
	}
	defer release()

	// That it may run is on record before anybody is told, and is written while the shim works:
	// what else is to be known of a container that runs, a server that finds this record learns from
	// the shim. It need not be synced: a power cut ends a container that was created as one that ran.
	recorded := c.recordStart()
	t := c.task(shim)
	started, err := m.startTask(ctx, t, sb, rec)
	if span := trace.Current(ctx); err == nil && span.On() {
		span.Event("process started", started.StartedAt)
		span.Number("process.pid", int64(started.PID))
	}
	if rerr := <-recorded; rerr != nil { // what else has failed is due to the same disk, perhaps
		if err != nil {
			c.log.Warn("failed to start container", "error", err)
		}
		err = rerr
	}
	if err == nil {
		_, err = m.records.Amend(c.ID, c.mover(state.Running, func(r *state.Container) { r.PID, r.StartedAt = started.PID, started.StartedAt }))
	}
	if err != nil {
		t.drop(ctx)
		if !silent(ctx, err) {
			t.vacate(ctx, rec.CgroupsPath)
		}
		if f, err := os.OpenFile(rec.LogPath, os.O_CREATE|os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o640); err == nil {
			f.Close() // a kubelet looks in the log for the reason
		}
		c.exit(ending{code: codeStartError, at: time.Now(), reason: reasonStartError, message: errtext.Of(err)})
		c.over()
		return fmt.Errorf("start container %q: %w", rec.Config.Value.GetMetadata().GetName(), err)
	}
	go m.watcher.watch(c, sb, shim)
	go c.store()
	if rec.FromCheckpoint { // a container starts once
		if err := os.RemoveAll(m.volumes.state(rec.ID)); err != nil {
			m.o.Logger.Warn("failed to remove the state that a container started from", "container", rec.ID, "error", err)
		}
	}
	m.o.Logger.Info("container started", "container", rec.ID, "pid", started.PID)
	return nil
}

// tellStart tells whoever counts them of a container's start.
func (m *Manager) tellStart(rec state.Container, at time.Time, err error) {
	if m.o.Started == nil {
		return
	}
	took := time.Since(at)
	pod, _ := m.o.Sandboxes.Get(rec.SandboxID) // of a pod that was removed meanwhile no handler is known
	m.o.Started(pod.HandlerName, took, err)
}

// recordStart notes, beside the caller, that the container's process may run from now on, and says
// when that is written.
func (c *Container) recordStart() <-chan error {
	done := make(chan error, 1)
	now := time.Now()
	go func() {
		_, err := c.records.Note(c.ID, func(r state.Container) (state.Container, error) {
			r.StartAttemptedAt = now
			return r, nil
		})
		done <- err
	}()
	return done
}

// errMoved says that a container is in another state by now.
var errMoved = errors.New("it has moved on")

// store notes the record of a container that has just started.
func (c *Container) store() {
	_, err := c.records.Note(c.ID, func(r state.Container) (state.Container, error) {
		if r.Phase != state.Running {
			return r, errMoved
		}
		return r, nil
	})
	if err != nil && !errors.Is(err, errMoved) && !errdefs.IsNotFound(err) {
		c.log.Error("failed to record that a container runs", "error", err)
	}
}

// startTask starts the task that a container's record describes.
func (m *Manager) startTask(ctx context.Context, t task, sb *sandbox.Sandbox, rec state.Container) (client.Launched, error) {
	req, err := m.taskRequest(sb, rec)
	if err == nil && rec.Unstartable != "" {
		err = fmt.Errorf("%s: %w", rec.Unstartable, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return client.Launched{}, err
	}
	return t.start(ctx, req)
}

// taskRequest is what the shim is asked for, to start a container.
func (m *Manager) taskRequest(sb *sandbox.Sandbox, rec state.Container) (client.CreateRequest, error) {
	pod, err := m.o.Sandboxes.Get(rec.SandboxID)
	if err != nil {
		return client.CreateRequest{}, err
	}
	bundle := filepath.Join(sb.Dir, rec.ID)
	req := client.CreateRequest{
		ID: rec.ID, Bundle: bundle, Terminal: rec.Config.Value.GetTty(),
		Options: client.RuntimeOptions{Binary: pod.Binary, SystemdCgroup: m.o.Cgroups.Driver == cgroup.Systemd},
	}
	if ids := spec.UserNamespace(pod.Config.Value); ids != nil { // who may open them anew
		req.Options.IOUID, req.Options.IOGID = ids.UID.HostID+rec.User.UID, ids.GID.HostID+rec.User.GID
	}
	req.Rootfs = rec.RootFS
	for _, v := range rec.ImageVolumes {
		req.Images = append(req.Images, client.Image{Name: strconv.Itoa(v.Mount), Mounts: v.Mounts})
	}
	req.Stdout = stdio.Attachable
	if rec.LogPath != "" {
		err := os.MkdirAll(filepath.Dir(rec.LogPath), 0o755)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENOENT) { // as below /proc
			err = fmt.Errorf("%w: %w", err, errdefs.ErrFailedPrecondition)
		}
		if err != nil {
			return req, fmt.Errorf("make log folder: %w", err)
		}
		req.Stdout = stdio.Scheme + rec.LogPath
	}
	if !req.Terminal {
		req.Stderr = req.Stdout
	}
	if rec.FromCheckpoint {
		req.Checkpoint = m.volumes.state(rec.ID)
	}
	if rec.Config.Value.GetStdin() {
		req.Stdin = stdio.Attachable
	}
	return req, nil
}
