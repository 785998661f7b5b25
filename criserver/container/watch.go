package container

import (
	"context"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/shim/client"
)

// watch waits for the end of a running container.
func (m *Manager) watch(c *Container, sb *sandbox.Sandbox, shim *client.Client) {
	_, err := shim.Wait(m.ctx, c.ID, "")
	if m.ctx.Err() != nil {
		return
	}
	if errdefs.IsUnavailable(err) {
		m.watchSandbox(c, sb)
		return
	}
	m.reap(c, sb, shim)
}

// watchSandbox waits until nothing of a dead shim is left, and ends the container then.
func (m *Manager) watchSandbox(c *Container, sb *sandbox.Sandbox) {
	select {
	case <-sb.Gone():
		m.lost(c, sb)
	case <-m.ctx.Done():
	}
}

// reapLimit is how long a shim may take to say how a container ended and to delete it.
const reapLimit = 10 * time.Second

// reap takes the end of a container from the shim: durable status first, then it is over, then the task is deleted. Nobody who waits
// for the end waits for the runtime's program, which removes what it keeps.
func (m *Manager) reap(c *Container, sb *sandbox.Sandbox, shim *client.Client) {
	ctx, cancel := context.WithTimeout(m.ctx, reapLimit)
	defer cancel()
	defer c.deleting()()
	d, err := shim.Details(ctx, c.ID)
	switch {
	case errdefs.IsUnavailable(err):
		m.watchSandbox(c, sb)
		return
	case err != nil || d.Exit == nil:
		m.o.Logger.Warn("ask for the end of a container", "container", c.ID, "error", err)
		m.lost(c, sb)
	default:
		c.exit(toEnding(*d.Exit))
	}
	m.o.Logger.Info("container has ended", "container", c.ID)
	c.over()
	if _, err := shim.Delete(ctx, c.ID, ""); err != nil && !errdefs.IsNotFound(err) {
		m.o.Logger.Warn("delete task", "container", c.ID, "error", err)
	}
}

// lost ends a container whose shim cannot say how it ended any more.
func (m *Manager) lost(c *Container, sb *sandbox.Sandbox) {
	if exit, ok := client.ReadExit(filepath.Join(sb.Dir, c.ID)); ok {
		c.exit(toEnding(exit))
	} else {
		c.exit(ending{code: codeUnknown, at: time.Now(), reason: reasonUnknown, message: "the shim ended before it could say how the container did"})
	}
	c.over()
}

// toEnding puts an exit into the CRI's words.
func toEnding(x client.Exit) ending {
	e := ending{code: int32(x.Code), at: x.At, message: x.Message, reason: reasonError}
	switch {
	case x.OOMKilled:
		e.reason = reasonOOMKilled
	case x.Code == 0:
		e.reason = reasonCompleted
	}
	return e
}
