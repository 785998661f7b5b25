package container

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Adopt finds out what became of a sandbox's containers while no server ran; it is for sandbox.Manager.Recover.
func (m *Manager) Adopt(ctx context.Context, _ state.Sandbox, sb *sandbox.Sandbox, found sandbox.Found) {
	for _, rec := range m.records.List() {
		if rec.SandboxID == sb.ID {
			m.adopt(ctx, rec, sb, found)
		}
	}
	if found != sandbox.Silent {
		m.dropStrangers(ctx, sb)
	}
}

// dropStrangers ends and removes containers of a sandbox that are not on record, because their record was damaged: nobody
// can ask about them any more, and their client starts others in their place.
func (m *Manager) dropStrangers(ctx context.Context, sb *sandbox.Sandbox) {
	bundles, err := filepath.Glob(filepath.Join(sb.Dir, "*", configFile))
	if err != nil {
		m.o.Logger.Error("look for containers that are not on record", "sandbox", sb.ID, "error", err)
	}
	for _, file := range bundles {
		id := filepath.Base(filepath.Dir(file))
		if _, err := m.records.Get(id); id == sb.ID || !errdefs.IsNotFound(err) {
			continue
		}
		m.o.Logger.Warn("remove a container that is not on record", "container", id, "sandbox", sb.ID)
		if shim := sb.Shim(); shim != nil {
			m.dropTask(ctx, shim, id)
		}
		if err := sb.RemoveBundle(id); err != nil {
			m.o.Logger.Error("remove a container that is not on record", "container", id, "error", err)
		}
	}
}

func (m *Manager) adopt(ctx context.Context, rec state.Container, sb *sandbox.Sandbox, found sandbox.Found) {
	c := m.alive(rec.ID)
	log := m.o.Logger.With("container", rec.ID)
	switch {
	case rec.Phase == state.Creating:
		if err := m.forget(ctx, c, rec); err != nil {
			log.Error("remove a container that was not made", "error", err)
		}
	case found == sandbox.Living:
		m.adoptLiving(ctx, c, rec, sb)
		m.adoptUpdate(ctx, c, sb)
	case found == sandbox.Silent && (rec.Phase == state.Running || mayRun(rec)):
		if err := m.suspect(c, rec); err != nil {
			log.Error("recover container", "error", err)
		}
		go m.watchSandbox(c, sb)
	case found == sandbox.Ended:
		m.adoptEnded(c, rec, sb)
	}
	if now, err := m.records.Get(rec.ID); err == nil && now.Phase == state.Exited {
		c.over()
	}
}

// mayRun says of a container that is Created on record that the server which started it died before it wrote that it runs.
func mayRun(rec state.Container) bool { return rec.Phase == state.Created && !rec.BegunAt.IsZero() }

// suspect makes a container Unknown that runs, or may.
func (m *Manager) suspect(c *Container, rec state.Container) error {
	if mayRun(rec) {
		if _, err := m.records.Amend(c.ID, c.mover(state.Running, func(r *state.Container) { r.StartedAt = r.BegunAt })); err != nil {
			return err
		}
	}
	_, err := m.records.Amend(c.ID, c.mover(state.Unknown, func(*state.Container) {}))
	return err
}

// adoptLiving compares a record with what the shim says of the task.
func (m *Manager) adoptLiving(ctx context.Context, c *Container, rec state.Container, sb *sandbox.Sandbox) {
	shim := sb.Shim()
	st, err := shim.State(ctx, rec.ID, "")
	switch {
	case errdefs.IsNotFound(err):
		if rec.Phase == state.Running {
			m.lost(c, sb)
		}
		return
	case err != nil:
		m.o.Logger.Error("ask shim for container", "container", rec.ID, "error", err)
		if rec.Phase == state.Running {
			go m.watch(c, sb, shim)
		}
		return
	}
	switch {
	case rec.Phase == state.Exited:
		// The server died after the status was durable and before the task was deleted.
		m.dropTask(ctx, shim, rec.ID)
	case rec.Phase == state.Created && st.Status == client.StatusCreated:
		// It died between making the task and starting it: as if neither had been.
		m.dropTask(ctx, shim, rec.ID)
	default:
		d, err := shim.Details(ctx, rec.ID)
		if err != nil {
			m.o.Logger.Error("ask shim for container", "container", rec.ID, "error", err)
			d.StartedAt = time.Now()
		}
		if rec.Phase == state.Created {
			// It died after starting the process and before recording that.
			if _, err := c.move(state.Running, func(r *state.Container) { r.PID, r.StartedAt = st.PID, d.StartedAt }); err != nil {
				m.o.Logger.Error("recover container", "container", rec.ID, "error", err)
				return
			}
		}
		m.dropSessions(ctx, shim, rec.ID, filepath.Join(sb.Dir, rec.ID), d.Execs)
		if st.Status == client.StatusStopped {
			m.reap(c, sb, shim)
			return
		}
		if st.Status == client.StatusPaused {
			// It died while it made a checkpoint.
			if err := shim.Resume(ctx, rec.ID); err != nil {
				m.o.Logger.Error("resume container", "container", rec.ID, "error", err)
			}
		}
		go m.watch(c, sb, shim)
	}
}

// dropSessions ends what requests to the server that died had begun in a container. Nobody waits for the commands of
// ExecSync any more: they are killed. Those of clients that took part run on, as when a client leaves.
func (m *Manager) dropSessions(ctx context.Context, shim *client.Client, id, bundle string, execs []string) {
	for _, pipe := range sessionPipes(bundle) {
		if err := os.Remove(pipe); err != nil && !errors.Is(err, os.ErrNotExist) {
			m.o.Logger.Error("remove the pipe of a request that is gone", "container", id, "error", err)
		}
	}
	for _, execID := range execs {
		e := &execution{shim: shim, id: id, execID: execID}
		if strings.HasPrefix(execID, syncPrefix) {
			e.drop(ctx)
			continue
		}
		go func() {
			if _, err := shim.Wait(m.ctx, id, execID); err == nil {
				e.drop(m.ctx)
			}
		}()
	}
}

// adoptUpdate carries a change of limits through that the server that died had begun.
func (m *Manager) adoptUpdate(ctx context.Context, c *Container, sb *sandbox.Sandbox) {
	rec, err := m.records.Get(c.ID)
	if err != nil || rec.Wanted.Value == nil || rec.Phase != state.Created && rec.Phase != state.Running {
		return
	}
	if err := m.update(ctx, c, rec, rec.Wanted.Value); err != nil {
		m.o.Logger.Error("set the resources of a container", "container", c.ID, "error", err)
	}
}

// adoptEnded is for containers whose shim is gone: those that ran have ended, and those that were only created can not be
// started any more once their bundle is gone too, which a reboot does.
func (m *Manager) adoptEnded(c *Container, rec state.Container, sb *sandbox.Sandbox) {
	switch rec.Phase {
	case state.Running:
		m.lost(c, sb)
	case state.Created:
		if _, ok := client.ReadExit(filepath.Join(sb.Dir, rec.ID)); ok || mayRun(rec) {
			// Server and shim died before it was on record that it runs.
			m.lost(c, sb)
			return
		}
		if _, err := os.Stat(filepath.Join(sb.Dir, rec.ID, configFile)); err != nil {
			c.exit(ending{code: codeUnknown, at: time.Now(), reason: reasonUnknown, message: "the machine was restarted before the container was started"})
		}
	}
}

// RemoveOrphans removes, after all sandboxes were recovered, containers without a sandbox or half removed, and root
// filesystems without a container.
func (m *Manager) RemoveOrphans(ctx context.Context) {
	keys, err := m.o.Images.RootFSKeys(ctx)
	if err != nil {
		m.o.Logger.Error("look for orphaned root filesystems", "error", err)
	}
	known := map[string]bool{}
	for _, rec := range m.records.List() {
		if err == nil && m.halfRemoved(rec, keys) {
			m.o.Logger.Warn("remove the rest of a container", "container", rec.ID)
			if err := m.Remove(ctx, rec.ID); err != nil {
				m.o.Logger.Error("remove the rest of a container", "container", rec.ID, "error", err)
			}
			continue
		}
		if _, err := m.o.Sandboxes.Get(rec.SandboxID); errdefs.IsNotFound(err) {
			if err := m.forget(ctx, m.alive(rec.ID), rec); err != nil {
				m.o.Logger.Error("remove a container without sandbox", "container", rec.ID, "error", err)
			}
			continue
		}
		for _, key := range rec.Keys() {
			known[key] = true
		}
	}
	for _, key := range keys {
		if known[key] {
			continue
		}
		if err := m.o.Images.RemoveRootFS(ctx, key); err != nil {
			m.o.Logger.Error("remove orphaned root filesystem", "key", key, "error", err)
		}
	}
	entries, err := os.ReadDir(m.o.Volumes)
	if err != nil {
		m.o.Logger.Error("look for orphaned volumes", "error", err)
	}
	for _, e := range entries {
		if _, err := m.records.Get(e.Name()); errdefs.IsNotFound(err) {
			if err := space.Remove(m.volumesDir(e.Name())); err != nil {
				m.o.Logger.Error("remove orphaned volumes", "error", err)
			}
		}
	}
}

// halfRemoved says of a container that a server died while it removed it: bundle and root filesystem, of which keys are those
// that there are, went first. One that lacks only its root filesystem was damaged, which is for its client to decide.
func (m *Manager) halfRemoved(rec state.Container, keys []string) bool {
	if rec.Phase != state.Created && rec.Phase != state.Exited || slices.Contains(keys, rec.SnapshotKey) {
		return false
	}
	sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(sb.Dir, rec.ID))
	return errors.Is(err, fs.ErrNotExist)
}
