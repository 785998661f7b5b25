package runc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

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
	pid, ended := a.PID, false
	if a.Starting {
		if pid, ended, err = c.finishStart(ctx, pid); err != nil {
			return nil, err
		}
	}
	child, err := c.reaper.Adopt(pid)
	if err != nil {
		return nil, err
	}
	if ended && c.neverRan(ctx, child) {
		return nil, fmt.Errorf("the shim died while it started container %q: its program has not run: %w", c.id, errdefs.ErrNotFound)
	}
	c.init.watch(child)
	return c, nil
}

// startTime is how long a runtime may take to start a container that it calls created.
const startTime = 10 * time.Second

// finishStart starts a container whose start has failed halfway with the shim, unless that came far
// enough. It returns init's pid, and whether init has ended.
func (c *container) finishStart(ctx context.Context, pid int) (_ int, ended bool, err error) {
	state, err := c.state(ctx)
	if errdefs.IsNotFound(err) {
		return 0, false, fmt.Errorf("the shim died while it started the container: %w", err)
	}
	if err != nil {
		return 0, false, err
	}
	if pid == 0 { // one step was to make it and let it run
		if pid = state.Pid; pid <= 0 { // it has ended, or was not there yet
			pid, _ = runc.ReadPidFile(filepath.Join(c.dir, bundle.PidName))
		}
		if pid <= 0 {
			return 0, false, fmt.Errorf("the shim died while it started container %q: its process is unknown: %w", c.id, errdefs.ErrNotFound)
		}
	}
	if state.Status != "created" {
		return pid, state.Status == "stopped", nil
	}
	within, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	err = c.ask(func() error { return c.runtime.Start(within, c.id) })
	if err == nil || within.Err() != nil && ctx.Err() == nil {
		// A runtime that was killed before it could remove its FIFO calls a program created that
		// runs, and waits for it without end.
		return pid, false, nil
	}
	if state, serr := c.state(ctx); serr == nil && state.Status == "stopped" {
		return pid, true, nil
	}
	return 0, false, err
}

func (c *container) state(ctx context.Context) (state *runc.Container, err error) {
	err = c.ask(func() error {
		state, err = c.runtime.State(ctx, c.id)
		return err
	})
	return state, err
}

// execFIFO is where a runtime lets init go on, in the folder of its state: init opens it, writes a
// byte, and becomes the container's program. The runtime removes it when it has read that.
const execFIFO = "exec.fifo"

// neverRan says of an init that has ended whether it was never the container's program. When the
// runtime dies between the opening of the FIFO and the reading of the byte, init fails to write it
// and exits with 255 (runc before 1.2, crun: 1).
func (c *container) neverRan(ctx context.Context, init *reaper.Child) bool {
	if _, err := os.Stat(filepath.Join(c.runtime.Root, c.id, execFIFO)); err != nil {
		return false
	}
	select {
	case <-init.Done:
	case <-ctx.Done():
		return false
	}
	code, _ := init.Status()
	return code == 255 || code == 1
}
