package container

import (
	"context"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/shim/client"
)

// watcher notices the ends of containers.
type watcher struct {
	ctx context.Context // ends with the server
}

// watch waits for the end of a running container.
func (w watcher) watch(c *Container, sb *sandbox.Sandbox, shim *client.Client) {
	_, err := shim.Wait(w.ctx, c.ID, "")
	if w.ctx.Err() != nil {
		return
	}
	if errdefs.IsUnavailable(err) {
		w.watchSandbox(c, sb)
		return
	}
	w.reap(c, sb, shim)
}

// watchSandbox waits until nothing of a dead shim is left, and ends the container then.
func (w watcher) watchSandbox(c *Container, sb *sandbox.Sandbox) {
	select {
	case <-sb.Cleaned():
		c.lost(sb)
	case <-w.ctx.Done():
	}
}

// reapLimit is how long a shim may take to say how a container ended and to delete it.
const reapLimit = 10 * time.Second

// reap takes the end of a container from the shim: durable status first, then it is over, then the
// task is deleted. Who waits for the end does not wait for the runtime's program, which removes
// what it keeps.
func (w watcher) reap(c *Container, sb *sandbox.Sandbox, shim *client.Client) {
	ctx, cancel := context.WithTimeout(w.ctx, reapLimit)
	defer cancel()
	deleted := c.deleting()
	var written <-chan struct{}
	d, err := shim.Details(ctx, c.ID)
	switch {
	case errdefs.IsUnavailable(err):
		w.watchSandbox(c, sb)
		deleted()
		return
	case err != nil || d.Exit == nil:
		c.log.Warn("failed to ask for the end of a container", "error", err)
		c.lost(sb)
	default:
		written = c.exit(toEnding(*d.Exit))
	}
	c.log.Info("container exited")
	c.over()
	if _, kept := client.ReadExit(filepath.Join(sb.Dir, c.ID)); written != nil && !kept {
		go w.deleteLater(c, shim, written, deleted)
		return
	}
	w.delete(c, shim)
	deleted()
}

// deleteLater deletes a task that has the only copy of its end, which the disk has refused, once
// that is written or not wanted any more. Without either it stays for the next server.
func (w watcher) deleteLater(c *Container, shim *client.Client, written <-chan struct{}, deleted func()) {
	defer deleted()
	select {
	case <-written:
	case <-c.unwanted:
	case <-w.ctx.Done():
		return
	}
	w.delete(c, shim)
}

func (w watcher) delete(c *Container, shim *client.Client) {
	ctx, cancel := context.WithTimeout(w.ctx, reapLimit)
	defer cancel()
	if _, err := shim.Delete(ctx, c.ID, ""); err != nil && !errdefs.IsNotFound(err) {
		c.log.Warn("failed to delete task", "error", err)
	}
}

// lost ends a container whose shim cannot say how it ended any more.
func (c *Container) lost(sb *sandbox.Sandbox) {
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
