package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/reaper"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

var _ shim.Adopter = (*Engine)(nil)

// boxLink is where the box has our end of the link to the container's first process, with a memo as
// its note. The guest process runs on as long as somebody has that end.
const boxLink = "link"

// memo is what a successor of this engine cannot find out by itself. What the guest process says is
// dropped from the link when it is on the memo; its last word stays in the link.
type memo struct {
	Entry    compile.Entry
	Limit    uint64       // memory limit in bytes, 0 = none
	Created  link.Message // or Started, whichever came last
	Stopping bool         // a guest that cannot hear a stop was sent one, or is about to be
	Stopped  bool         // it is killed because its process does not answer
}

// keep puts the memo as it is now beside the link. It does nothing for further processes, and
// without a supervisor. The caller holds p.mu.
func (p *process) keep() error {
	c := p.container
	if c.bundle.Box == nil || p != c.init {
		return nil
	}
	c.mu.Lock()
	m := memo{Entry: c.entry, Limit: c.limit, Created: p.created, Stopping: p.stopping, Stopped: p.stopped}
	c.mu.Unlock()
	m.Created.Text = "" // nobody asks for it, and it may be long
	note, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode memo: %w", err)
	}
	if err := c.bundle.Box.Keep(boxLink, note, p.link); err != nil {
		return fmt.Errorf("keep link: %w", err)
	}
	return nil
}

// remember is keep for callers that do not hold p.mu.
func (p *process) remember() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone() {
		return nil
	}
	return p.keep()
}

// Adopt implements shim.Adopter.
func (e *Engine) Adopt(ctx context.Context, b *shim.Bundle, a shim.Adoption) (shim.Container, error) {
	c, err := e.adopt(ctx, b, a)
	if err != nil {
		return nil, fmt.Errorf("adopt: %w", err)
	}
	return c, nil
}

func (e *Engine) adopt(ctx context.Context, b *shim.Bundle, a shim.Adoption) (_ *container, err error) {
	kept := a.Kept[boxLink]
	defer func() {
		if err != nil {
			closeAll(kept.Files)
		}
	}()
	if len(kept.Files) != 1 {
		return nil, fmt.Errorf("%d links to its guest are kept: %w", len(kept.Files), errdefs.ErrFailedPrecondition)
	}
	var m memo
	if err := json.Unmarshal(kept.Note, &m); err != nil {
		return nil, fmt.Errorf("decode memo: %w", err)
	}
	if err := check(b); err != nil {
		return nil, err
	}
	c := newContainer(e, b)
	c.entry, c.limit = m.Entry, m.Limit
	if c.cgroup, err = openCgroup(b, nil); err != nil {
		return nil, err
	}
	c.cgroup.oomed = 0 // it was made for this container
	c.paused.Store(c.cgroup.frozen())
	p := newProcess(c, a.IO)
	c.init = p
	p.started, p.created, p.stopping, p.stopped = a.Started, m.Created, m.Stopping, m.Stopped
	close(p.ready)
	if a.Exit != nil {
		p.markEnded(a.PID, *a.Exit, kept.Files[0])
		return c, nil
	}
	child, err := e.reaper.Adopt(a.PID)
	if err != nil {
		return nil, err
	}
	p.adopt(child, kept.Files[0], nil) // it is created
	return c, p.finish(a)
}

// markEnded makes the process one whose end is known.
func (p *process) markEnded(pid int, exit shim.Exit, ours *os.File) {
	ours.Close()
	done := make(chan struct{})
	close(done)
	p.child, p.exit = &reaper.Child{Pid: pid, Done: done}, exit
	close(p.exited)
}

// finish carries through what an earlier engine had started with the process. To be told twice
// changes nothing for it, and one that has exited need not be told.
func (p *process) finish(a shim.Adoption) error {
	if a.Starting {
		if err := p.sendStart(); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = p.started || a.Starting
	switch {
	case p.gone():
	case p.stopped:
		if err := p.kill(); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	case p.stopping:
		if err := p.interrupt(); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// frozen says whether the container is paused.
func (g *limited) frozen() bool {
	state, err := g.manager.GetFreezerState()
	return err == nil && state == cgroups.Frozen
}
