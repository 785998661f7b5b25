package wasm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// spareTime is how long a spare process waits for a container.
const spareTime = 10 * time.Second

// errSpare says that the spare process failed, and not what it was to become: a forked one may do.
var errSpare = errors.New("spare guest process failed")

// stock is the engine's spare guest process: one that was started before there is a container for it, in the pod's
// namespaces and in a cgroup of its own beside the containers'. It has nothing that a process forked for a container does
// not have, and waits as that does for its configuration. Its cgroup is renamed to be the container's. It ends when nobody
// wanted it for a while, and with the shim.
type stock struct {
	mu     sync.Mutex
	spare  *spare // nil = none
	closed bool
}

type spare struct {
	*newborn
	birth birth
	timer *time.Timer
}

// Prepare implements shim.Preparer: it makes sure that there is a spare process, for a while. Under version 2 cgroups
// cannot be renamed, and moving a process takes longer than to fork one: there it does nothing.
func (e *Engine) Prepare(_ context.Context, p shim.Preparation) error {
	if cgroups.IsCgroup2UnifiedMode() || !path.IsAbs(p.Cgroup) {
		return nil
	}
	b, err := initBirth(&specs.Spec{Linux: &specs.Linux{Namespaces: p.Namespaces}})
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	s := &e.stock
	s.mu.Lock()
	defer s.mu.Unlock()
	defer compile.Warm()
	if s.closed || s.spare.waitsFor(&b, p.Cgroup) && s.spare.timer.Reset(spareTime) {
		b.close()
		return nil
	}
	err = e.dropSpare()
	if err == nil {
		s.spare, err = e.newSpare(b, p.Cgroup)
	}
	if err != nil {
		b.close()
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}

// newSpare forks a spare process. birth is its own then.
func (e *Engine) newSpare(b birth, group string) (*spare, error) {
	b.cgroup = later(func() (*cgroup, error) {
		return newCgroup(&shim.Bundle{Spec: &specs.Spec{Linux: &specs.Linux{CgroupsPath: group}}})
	})
	n := e.fork(&b)
	var err error
	n.group, err = b.cgroup()
	if err = errors.Join(err, n.err); err == nil && !b.born {
		err = fmt.Errorf("cgroup %q: no process can be born there", group)
	}
	if err != nil {
		return nil, errors.Join(err, e.discard(n))
	}
	n.spare = true
	one := &spare{newborn: n, birth: b}
	one.timer = time.AfterFunc(spareTime, func() { e.retire(one) })
	return one, nil
}

// waitsFor says whether the process is there, and born so in a cgroup of this name.
func (s *spare) waitsFor(b *birth, group string) bool {
	return s != nil && !s.hasEnded() && s.birth.like(b) && s.group.path == path.Join("/", group)
}

// Close ends the spare process, and returns when it is gone. There will be none any more.
func (e *Engine) Close() error {
	e.stock.mu.Lock()
	defer e.stock.mu.Unlock()
	e.stock.closed = true
	return e.dropSpare()
}

// retire ends a spare process that nobody wanted. What it leaves is removed with the pod.
func (e *Engine) retire(one *spare) {
	e.stock.mu.Lock()
	defer e.stock.mu.Unlock()
	if e.stock.spare == one {
		_ = e.dropSpare()
	}
}

// dropSpare ends the spare process, if there is one. The caller holds the stock's lock.
func (e *Engine) dropSpare() error {
	one := e.stock.spare
	if one == nil {
		return nil
	}
	e.stock.spare = nil
	one.timer.Stop()
	one.birth.close()
	return e.discard(one.newborn)
}

// take gives the spare process away if it can become the first of this container, whose birth would be b.
func (e *Engine) take(c *shim.Bundle, b *birth) *newborn {
	if b.io.Terminal || isScope(c.Spec) { // it would have to get a terminal; systemd moves a process itself
		return nil
	}
	e.stock.mu.Lock()
	defer e.stock.mu.Unlock()
	one := e.stock.spare
	switch {
	case one == nil || !one.birth.like(b) || !one.group.canRename(cgroupPath(c)):
		return nil
	case one.hasEnded():
		_ = e.dropSpare() // as in retire
		return nil
	case !one.timer.Stop():
		return nil
	}
	e.stock.spare = nil
	one.birth.close()
	return one.newborn
}

func (n *newborn) hasEnded() bool {
	select {
	case <-n.child.Done:
		return true
	default:
		return false
	}
}

// like says whether two births make and join the same namespaces.
func (b *birth) like(other *birth) bool {
	if b.clone != other.clone || len(b.join) != len(other.join) {
		return false
	}
	for i := range b.join {
		one, err1 := b.join[i].Stat()
		two, err2 := other.join[i].Stat()
		if err1 != nil || err2 != nil || !os.SameFile(one, two) {
			return false
		}
	}
	return true
}

// makeCgroup makes the container's cgroup: a spare process's becomes it, with the process in it. Of one that could not be made
// whole it returns what there is.
func (n *newborn) makeCgroup(b *shim.Bundle) (*cgroup, error) {
	if n == nil {
		return newCgroup(b)
	}
	g, err := openCgroup(b)
	if err != nil {
		return nil, err
	}
	if err := n.group.rename(g.path); err != nil {
		return nil, fmt.Errorf("%w: %w", errSpare, err)
	}
	if err := g.make(); err != nil {
		return g, fmt.Errorf("%w: %w", errSpare, err)
	}
	return g, nil
}

// blame says of an error of a process that was to become a container's first whether it may be due to its having
// been a spare one.
func (n *newborn) blame(err error) error {
	var f *failure
	if !n.spare || errors.As(err, &f) && f.message.Class != link.Internal {
		return err
	}
	return fmt.Errorf("%w: %w", errSpare, err)
}
