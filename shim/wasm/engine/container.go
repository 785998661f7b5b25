package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// container is one guest with the further processes in it.
type container struct {
	engine   *Engine
	bundle   *shim.Bundle
	cgroup   *limited
	entry    compile.Entry
	init     *process
	stopWait bool
	paused   atomic.Bool
	stop     syscall.Signal // the configured stop signal, beside the usual ones

	mu      sync.Mutex
	limit   uint64 // memory limit in bytes, 0 = none
	further map[*process]struct{}
	deleted bool
}

var _ shim.Container = (*container)(nil)

func newContainer(e *Engine, b *shim.Bundle) *container {
	return &container{
		engine:   e,
		bundle:   b,
		stopWait: b.Facts.StopWait,
		stop:     unix.SignalNum(b.Facts.StopSignal),
		further:  make(map[*process]struct{}),
	}
}

// Init implements shim.Container.
func (c *container) Init() shim.Process { return c.init }

// Cgroup implements shim.Container.
func (c *container) Cgroup() string { return c.cgroup.Path() }

// Pids implements shim.Container.
func (c *container) Pids(context.Context) ([]int, error) {
	pids, err := c.cgroup.Pids()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return pids, nil
}

// Pause implements shim.Container.
func (c *container) Pause(context.Context) error { return c.freeze(cgroups.Frozen) }

// Resume implements shim.Container.
func (c *container) Resume(context.Context) error { return c.freeze(cgroups.Thawed) }

func (c *container) freeze(to cgroups.FreezerState) error {
	err := c.cgroup.freeze(to)
	if err == nil {
		c.paused.Store(to == cgroups.Frozen)
	}
	return err
}

// Update implements shim.Container: the cgroup's limits at once, linear memory's ceiling for the
// next growth.
func (c *container) Update(_ context.Context, r *specs.LinuxResources) error {
	if err := c.cgroup.update(r, enginePart(c.entry)); err != nil {
		return err
	}
	if r == nil || r.Memory == nil || r.Memory.Limit == nil || *r.Memory.Limit == 0 {
		return nil
	}
	c.mu.Lock()
	c.limit = memoryLimit(r)
	bytes := c.limit
	c.mu.Unlock()
	if err := c.init.remember(); err != nil {
		return err
	}
	for _, p := range c.live() {
		p.tell(link.Message{Kind: link.Ceiling, Bytes: bytes})
	}
	return nil
}

// Details implements shim.Container.
func (c *container) Details() shim.Details {
	p := c.init
	p.mu.Lock()
	defer p.mu.Unlock()
	d := shim.Details{
		PID:        p.child.Pid,
		LinearBase: p.created.LinearBase,
		LinearSize: p.created.LinearSize,
		EngineCPU:  p.created.EngineCPU,
	}
	if p.hasEnded() {
		exit := p.exit
		d.Exit = &exit
	}
	return d
}

// Delete implements shim.Container. What still runs is killed.
func (c *container) Delete(context.Context) error {
	c.mu.Lock()
	c.deleted = true
	c.mu.Unlock()
	for _, p := range c.live() {
		if err := p.signal(unix.SIGKILL); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
			return err
		}
		<-p.exited
	}
	return c.cgroup.destroy()
}

// live lists the processes that have been made and are not gone, the first one first.
func (c *container) live() []*process {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*process
	if !c.init.hasEnded() {
		all = append(all, c.init)
	}
	for p := range c.further {
		if p.hasEnded() {
			delete(c.further, p)
			continue
		}
		all = append(all, p)
	}
	return all
}

func (p *process) hasEnded() bool { return closed(p.exited) }

// stops says whether sig asks a guest to end.
func (c *container) stops(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP:
		return true
	}
	return c.stop != 0 && sig == c.stop
}
