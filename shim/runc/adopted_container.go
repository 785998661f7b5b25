package runc

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	c.cgroup, c.init, c.adopted = a.Task.Cgroup, newProcess(c, nil), true
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

// startTime bounds what an adoption waits for a start, and for an init that has ended. Whoever
// calls the shim about any container waits for the adoption, not longer than ten seconds.
const startTime = 5 * time.Second

// finishStart completes a start that the shim's death interrupted. It returns init's pid, and
// whether init had ended before.
func (c *container) finishStart(ctx context.Context, pid int) (_ int, ended bool, err error) {
	state, err := c.state(ctx)
	if errdefs.IsNotFound(err) {
		return 0, false, fmt.Errorf("the shim died while it started the container: %w", err)
	}
	if err != nil {
		return 0, false, err
	}
	if pid == 0 { // one step was to make it and let it run
		filed, _ := runc.ReadPidFile(filepath.Join(c.dir, bundle.PidName))
		if pid = cmp.Or(max(state.Pid, 0), c.initOnRecord(), filed); pid <= 0 {
			return 0, false, fmt.Errorf("the shim died while it started container %q: its process is unknown: %w", c.id, errdefs.ErrNotFound)
		}
	}
	if state.Status != "created" {
		return pid, state.Status == "stopped", nil
	}
	within, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	err = c.ask(func() error { return c.runtime.Start(within, c.id) })
	switch {
	case err == nil:
		return pid, false, nil
	case within.Err() != nil && !c.isInit(pid):
		// A runc that is killed before it removes exec.fifo reports a running container as created,
		// and a second start waits for its init without end.
		return pid, false, nil
	case within.Err() != nil:
		return 0, false, fmt.Errorf("start container %q again after the shim's death: %w", c.id, err)
	}
	if state, serr := c.state(ctx); serr == nil && state.Status == "stopped" {
		return pid, false, nil
	}
	return 0, false, err
}

// initOnRecord is the pid of an init that may have ended, 0 if the runtime has none on record. It
// writes that down before it lets the program run, and a file of the pid after that.
func (c *container) initOnRecord() int {
	var r struct {
		Init int `json:"init_process_pid"` // runc
		Pid  int `json:"pid"`              // crun
	}
	for _, name := range []string{"state.json", "status"} {
		data, _ := os.ReadFile(filepath.Join(c.runtime.Root, c.id, name))
		_ = json.Unmarshal(data, &r) // what it does not say is 0
	}
	return max(r.Init, r.Pid)
}

// isInit says whether a process is still runc's init, which waits to become the container's
// program: its command line is runc's, with the argument init.
func (c *container) isInit(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := strings.Split(string(line), "\x00")
	return len(args) > 1 && args[1] == "init" && filepath.Base(args[0]) == filepath.Base(c.runtime.Command)
}

func (c *container) state(ctx context.Context) (state *runc.Container, err error) {
	err = c.ask(func() error {
		state, err = c.runtime.State(ctx, c.id)
		return err
	})
	return state, err
}

// execFIFO is in runc's folder of a container's state. Init opens it, which blocks until runc start
// opens it too, writes a byte and executes the container's program. Runc removes it when it has
// read the byte. With crun, which removes it first, a start that is cut off here is not noticed.
const execFIFO = "exec.fifo"

// neverRan reports whether an init that had ended before the adoption exited before it executed the
// container's program. If runc dies between the opening of the FIFO and the reading of the byte,
// init fails to write it and exits with 255 (before runc 1.2 with 1).
func (c *container) neverRan(ctx context.Context, init *reaper.Child) bool {
	if _, err := os.Stat(filepath.Join(c.runtime.Root, c.id, execFIFO)); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	select {
	case <-init.Done:
	case <-ctx.Done():
		return false
	}
	code, _ := init.Status()
	return code == 255 || code == 1
}
