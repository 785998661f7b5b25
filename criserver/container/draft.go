package container

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sunaba-project/sunaba/criserver/container/build"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/images"
)

// Create makes a container of an image and returns its id. Its process does not exist yet. The name
// of the container is reserved by Once.
//
// # Errors
//
// ErrInvalidArgument for a configuration that cannot be; ErrFailedPrecondition if the sandbox was
// stopped meanwhile. On error nothing is left.
func (m *Manager) Create(ctx context.Context, r Request, img images.Image) (string, error) {
	d, err := m.Draft(ctx, r, img)
	if err != nil {
		return "", err
	}
	return d.Commit(ctx)
}

// Draft is a container that is being made: it is complete, and no request finds it yet. It ends
// with Commit or Discard; its sandbox is not stopped before.
type Draft struct {
	manager   *Manager
	container *Container
	rec       state.Container
	release   func()
}

// Draft makes a container of an image as far as that it can be changed.
//
// # Errors
//
// Those of Create.
func (m *Manager) Draft(ctx context.Context, r Request, img images.Image) (_ *Draft, err error) {
	if err := m.o.Images.Permit(img, r.Pod.Config.Value.GetMetadata().GetNamespace()); err != nil {
		return nil, err
	}
	if err := m.maker.Check(r.Pod, img); err != nil {
		return nil, err
	}
	sb, err := m.o.Sandboxes.Sandbox(r.Pod.ID)
	if err != nil {
		return nil, err
	}
	_, release, err := sb.Use()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	pidNS, err := r.pidNamespace(m.index)
	if err != nil {
		return nil, err
	}
	if build.IsWasm(img) {
		sb.Prepare(ctx)
		m.maker.Ready(ctx, img)
	}
	rec := r.intent(sb, img, m.created(r.Pod.ID), func(id string) string { return m.o.Sandboxes.Leaf(r.Pod, id) })
	if err := m.records.Create(rec.ID, rec); err != nil {
		return nil, fmt.Errorf("record intent: %w", err)
	}
	c := newContainer(m.records, rec, m.o.Logger)
	m.add(c)
	d := &Draft{manager: m, container: c, rec: rec, release: release}
	err = m.maker.Build(ctx, build.Request{
		Sandbox: sb, Pod: r.Pod, Image: img, PIDNamespace: pidNS, Volumes: m.volumes.of(rec.ID),
	}, &d.rec)
	if err != nil {
		d.undo(ctx)
		return nil, err
	}
	return d, nil
}

// Spec returns the bytes of the container's OCI specification.
func (d *Draft) Spec() ([]byte, error) { return d.manager.Spec(d.rec) }

// ChangeRoot calls change with the container's root filesystem, which nobody else uses.
func (d *Draft) ChangeRoot(ctx context.Context, change func(root string) error) error {
	return d.manager.o.Images.ChangeRootFS(ctx, d.rec.SnapshotKey, change)
}

// TakeState takes a folder with the state of processes, which Start continues: the container's
// program is not executed.
func (d *Draft) TakeState(dir string) error {
	rec := &d.rec
	if err := os.MkdirAll(d.manager.volumes.of(rec.ID), 0o755); err != nil {
		return err
	}
	if err := os.Rename(dir, d.manager.volumes.state(rec.ID)); err != nil {
		return err
	}
	rec.FromCheckpoint, rec.Unstartable = true, ""
	return nil
}

// Commit makes the container one that can be found, and returns its id.
func (d *Draft) Commit(ctx context.Context) (string, error) {
	defer d.release()
	m, rec := d.manager, d.rec
	_, err := d.container.move(state.Created, func(r *state.Container) {
		r.User, r.RootFS, r.ImageVolumes, r.ProcessLabel = rec.User, rec.RootFS, rec.ImageVolumes, rec.ProcessLabel
		r.FromCheckpoint = rec.FromCheckpoint
		r.Unstartable = rec.Unstartable
	})
	if err != nil {
		d.undo(ctx)
		return "", err
	}
	m.o.Logger.Info("container created", "container", rec.ID, "name", rec.Config.Value.GetMetadata().GetName(),
		"sandbox", rec.SandboxID, "image", rec.ImageName)
	return rec.ID, nil
}

// Discard deletes the container.
func (d *Draft) Discard(ctx context.Context) {
	defer d.release()
	d.undo(ctx)
}

func (d *Draft) undo(ctx context.Context) {
	ctx, cancel := sandbox.Aside(ctx)
	defer cancel()
	if err := errors.Join(d.manager.forget(ctx, d.container, d.rec), d.manager.records.Settle()); err != nil {
		d.manager.o.Logger.Error("failed to undo container, it is removed with its pod", "container", d.rec.ID, "error", err)
		// What it has is found then by its record.
		_, _ = d.manager.records.Amend(d.rec.ID, func(state.Container) (state.Container, error) { return d.rec, nil })
	}
}
