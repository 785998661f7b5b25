package runc

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/containerd/go-runc"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/reaper"
)

var _ shim.Adopter = (*Engine)(nil)

// Adopt implements shim.Adopter. What the runtime knows of the container is on disk.
func (e *Engine) Adopt(ctx context.Context, b *shim.Bundle, a shim.Adoption) (shim.Container, error) {
	c, err := e.container(b, shim.Options{Binary: a.Task.Binary, Root: a.Task.Root, SystemdCgroup: a.Task.SystemdCgroup})
	if err != nil {
		return nil, err
	}
	c.cgroup, c.init = a.Task.Cgroup, newProcess(c, nil)
	c.init.master = a.IO.Console
	if a.Exit != nil {
		c.init.child, c.init.exit = &reaper.Child{Pid: a.PID}, *a.Exit
		close(c.init.exited)
		return c, nil
	}
	pid := a.PID
	if a.Starting {
		if pid, err = c.finishStart(ctx, pid); err != nil {
			return nil, err
		}
	}
	child, err := c.reaper.Adopt(pid)
	if err != nil {
		return nil, err
	}
	c.init.watch(child)
	return c, nil
}

// finishStart starts a container whose start was begun, unless it was started, and returns init's pid.
func (c *container) finishStart(ctx context.Context, pid int) (int, error) {
	var state *runc.Container
	err := c.ask(func() (err error) {
		state, err = c.runtime.State(ctx, c.id)
		return err
	})
	if errdefs.IsNotFound(err) {
		return 0, fmt.Errorf("the shim died while it started the container: %w", err)
	}
	if err != nil {
		return 0, err
	}
	if pid == 0 { // one step was to make it and let it run
		if pid = state.Pid; pid <= 0 { // it has ended, or was not there yet
			pid, _ = runc.ReadPidFile(filepath.Join(c.dir, bundle.PidName))
		}
		if pid <= 0 {
			return 0, fmt.Errorf("the shim died while it started container %q: its process is unknown: %w", c.id, errdefs.ErrNotFound)
		}
	}
	if state.Status == "created" {
		return pid, c.ask(func() error { return c.runtime.Start(ctx, c.id) })
	}
	return pid, nil
}
