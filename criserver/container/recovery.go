package container

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/container/build"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Adopt finds out what happened to a sandbox's containers while no server ran; it is for
// sandbox.Manager.Recover, and as a sandbox.Finding.
func (m *Manager) Adopt(ctx context.Context, sb *sandbox.Sandbox, found sandbox.Found, shim *client.Client) {
	a := adoption{Manager: m, sandbox: sb, shim: shim, rebooted: sb.Rebooted()}
	for _, rec := range m.records.List() {
		if rec.SandboxID == sb.ID {
			a.adopt(ctx, rec, found)
		}
	}
	if found != sandbox.Silent {
		a.dropStrangers(ctx)
	}
}

// adoption is the recovery of one sandbox's containers.
type adoption struct {
	*Manager
	sandbox  *sandbox.Sandbox
	shim     *client.Client // nil without one that answers
	rebooted bool           // the machine, since the sandbox was made
}

// dropStrangers ends and removes containers of a sandbox that are not on record, because their
// record was damaged: no request can name them any more, and their client starts others in their
// place.
func (a adoption) dropStrangers(ctx context.Context) {
	bundles, err := filepath.Glob(filepath.Join(a.sandbox.Dir, "*", build.ConfigFile))
	if err != nil {
		a.o.Logger.Error("failed to list unrecorded containers", "sandbox", a.sandbox.ID, "error", err)
	}
	for _, file := range bundles {
		id := filepath.Base(filepath.Dir(file))
		if _, err := a.records.Get(id); id == a.sandbox.ID || !errdefs.IsNotFound(err) {
			continue
		}
		a.o.Logger.Warn("removing unrecorded container", "container", id, "sandbox", a.sandbox.ID)
		if a.shim != nil {
			task{shim: a.shim, id: id, log: a.o.Logger.With("container", id)}.drop(ctx)
		}
		if err := a.sandbox.RemoveBundle(id); err != nil {
			a.o.Logger.Error("failed to remove unrecorded container", "container", id, "error", err)
		}
	}
}

func (a adoption) adopt(ctx context.Context, rec state.Container, found sandbox.Found) {
	c := a.alive(rec.ID)
	switch {
	case rec.Phase == state.Creating:
		if err := a.forget(ctx, c, rec); err != nil {
			c.log.Error("failed to remove unfinished container", "error", err)
		}
	case rec.Phase == state.Exited:
		a.exited(ctx, c)
	case found == sandbox.Living:
		a.living(ctx, c, rec)
		a.update(ctx, c)
	case found == sandbox.Silent && (rec.Phase == state.Running || mayRun(rec)):
		if err := c.suspect(rec); err != nil {
			c.log.Error("failed to recover container", "error", err)
		}
		go a.watcher.watchSandbox(c, a.sandbox)
	case found == sandbox.Ended:
		a.ended(c, rec)
	}
	if now, err := a.records.Get(rec.ID); err == nil && now.Phase == state.Exited {
		c.over()
	}
}

// exited is for containers whose end is on record. Where the shim has no task of one any more, the
// end was durable; else the server may have died before it was.
func (a adoption) exited(ctx context.Context, c *Container) {
	if a.rebooted {
		return // what was read is on the disk
	}
	var err error
	if a.shim != nil {
		_, err = a.shim.State(ctx, c.ID, "")
	}
	if errdefs.IsNotFound(err) {
		return
	}
	if err := a.records.Sync(c.ID); err != nil {
		c.log.Error("failed to make the end of a container durable", "error", err)
		return // the shim's copy stays for the next start
	}
	if a.shim != nil {
		c.task(a.shim).drop(ctx)
	}
}

// mayRun says of a container that is Created on record that the server which started it died before
// it wrote that it runs.
func mayRun(rec state.Container) bool {
	return rec.Phase == state.Created && !rec.StartAttemptedAt.IsZero()
}

// suspect makes a container Unknown that runs, or may.
func (c *Container) suspect(rec state.Container) error {
	if mayRun(rec) {
		if _, err := c.records.Amend(c.ID, c.mover(state.Running, func(r *state.Container) { r.StartedAt = r.StartAttemptedAt })); err != nil {
			return err
		}
	}
	_, err := c.records.Amend(c.ID, c.mover(state.Unknown, func(*state.Container) {}))
	return err
}

// living compares a record with what the shim says of the task.
func (a adoption) living(ctx context.Context, c *Container, rec state.Container) {
	shim := a.shim
	st, err := shim.State(ctx, rec.ID, "")
	switch {
	case errdefs.IsNotFound(err):
		if rec.Phase == state.Running {
			c.lost(a.sandbox)
		}
		return
	case err != nil:
		c.log.Error("failed to ask shim for container", "error", err)
		if rec.Phase == state.Running {
			go a.watcher.watch(c, a.sandbox, shim)
		}
		return
	}
	switch {
	case rec.Phase == state.Created && st.Status == client.StatusCreated:
		// It died between making the task and starting it: as if neither had been.
		c.task(shim).drop(ctx)
	default:
		if rec.Phase == state.Created {
			// It died after starting the process and before recording that.
			d, err := shim.Details(ctx, rec.ID)
			if err != nil {
				c.log.Error("failed to ask shim for container", "error", err)
				d.StartedAt = time.Now()
			}
			if _, err := c.move(state.Running, func(r *state.Container) { r.PID, r.StartedAt = st.PID, d.StartedAt }); err != nil {
				c.log.Error("failed to recover container", "error", err)
				return
			}
		}
		if st.Status == client.StatusStopped {
			a.watcher.reap(c, a.sandbox, shim)
			return
		}
		if st.Status == client.StatusPaused {
			// It died while it made a checkpoint.
			if err := shim.Resume(ctx, rec.ID); err != nil {
				c.log.Error("failed to resume container", "error", err)
			}
		}
		go a.watcher.watch(c, a.sandbox, shim)
	}
}

// update carries a change of limits through that the server that died had started.
func (a adoption) update(ctx context.Context, c *Container) {
	rec, err := a.records.Get(c.ID)
	if err != nil || rec.Wanted.Value == nil || rec.Phase != state.Created && rec.Phase != state.Running {
		return
	}
	if err := a.resize(ctx, c, rec, rec.Wanted.Value); err != nil {
		c.log.Error("failed to set the resources of a container", "error", err)
	}
}

// ended is for containers whose shim has exited: those that ran have ended, and those that were
// only created can not be started any more once their bundle is deleted too, or after a reboot.
func (a adoption) ended(c *Container, rec state.Container) {
	switch rec.Phase {
	case state.Running:
		c.lost(a.sandbox)
	case state.Created:
		if _, ok := client.ReadExit(filepath.Join(a.sandbox.Dir, rec.ID)); ok || mayRun(rec) {
			// Server and shim died before it was on record that it runs.
			c.lost(a.sandbox)
			return
		}
		if _, err := os.Stat(filepath.Join(a.sandbox.Dir, rec.ID, build.ConfigFile)); err != nil || a.rebooted {
			c.exit(ending{code: codeUnknown, at: time.Now(), reason: reasonUnknown, message: "the machine was restarted before it was on record that the container was started"})
		}
	}
}
