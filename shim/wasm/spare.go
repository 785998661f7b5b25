package wasm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
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

// maxSpares bounds the spare processes of one engine. One that is asked for beyond that takes the place of the one that was asked
// for longest ago.
const maxSpares = 32

// stock is the engine's spare guest processes, at most one for each pod: one that was started before there is a container for it,
// in the pod's namespaces and in a cgroup of its own beside the containers'. It has nothing that a process forked for a
// container does not have, and waits as that does for its configuration. Its cgroup is renamed to be the container's. It
// ends when nobody wanted it for a while, with its pod, and with the shim.
type stock struct {
	mu     sync.Mutex
	slots  map[string]*slot // by the cgroup that a spare process is made in
	closed bool
}

// slot is where the spare process of one pod is, or was.
type slot struct {
	asked time.Time // for a process, the last time; under the stock's lock

	mu    sync.Mutex // held while the process is made or ended, which takes milliseconds
	spare *spare     // nil = none
	over  bool       // there will be none any more
}

type spare struct {
	*newborn
	birth birth
	timer *time.Timer
}

// Prepare implements shim.Preparer: it makes sure that the pod has a spare process, for a while. Under version 2 cgroups
// cannot be renamed, and moving a process takes longer than to fork one: there it does nothing.
func (e *Engine) Prepare(_ context.Context, p shim.Preparation) error {
	if cgroups.IsCgroup2UnifiedMode() || !path.IsAbs(p.Cgroup) {
		return nil
	}
	b, err := initBirth(&specs.Spec{Linux: &specs.Linux{Namespaces: p.Namespaces}})
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	group := path.Clean(p.Cgroup)
	s := e.stock.open(group, e)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer compile.Warm()
	if s.over || s.spare.waitsFor(&b) && s.spare.timer.Reset(spareTime) {
		b.close()
		return nil
	}
	err = s.drop(e)
	if err == nil {
		s.spare, err = e.newSpare(b, group, s)
	}
	if err != nil {
		b.close()
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}

// Unprepare implements shim.Preparer: it ends the spare process, and returns when it is gone.
func (e *Engine) Unprepare(_ context.Context, group string) error {
	if cgroups.IsCgroup2UnifiedMode() || !path.IsAbs(group) {
		return nil
	}
	return e.stock.open(path.Clean(group), e).end(e) // the slot stays, for requests that come too late
}

// Close implements shim.Preparer: it ends all spare processes, and returns when they are gone. There will be none any more.
func (e *Engine) Close() error {
	e.stock.mu.Lock()
	e.stock.closed = true
	all := slices.Collect(maps.Values(e.stock.slots))
	e.stock.mu.Unlock()
	var errs []error
	for _, s := range all {
		errs = append(errs, s.end(e))
	}
	return errors.Join(errs...)
}

// open is the slot of a cgroup. If there are too many then, the one that was asked for longest ago goes.
func (s *stock) open(group string, e *Engine) *slot {
	s.mu.Lock()
	one := s.slots[group]
	if one == nil {
		if s.slots == nil {
			s.slots = make(map[string]*slot)
		}
		one = &slot{over: s.closed}
		s.slots[group] = one
	}
	one.asked = time.Now()
	var surplus *slot
	if len(s.slots) > maxSpares {
		oldest := group
		for name, other := range s.slots {
			if other.asked.Before(s.slots[oldest].asked) {
				oldest = name
			}
		}
		surplus = s.slots[oldest]
		delete(s.slots, oldest)
	}
	s.mu.Unlock()
	if surplus != nil {
		_ = surplus.end(e) // as in retire
	}
	return one
}

// beside lists the slots of cgroups that have the same parent as this one.
func (s *stock) beside(group string) (all []*slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, one := range s.slots {
		if path.Dir(name) == path.Dir(group) {
			all = append(all, one)
		}
	}
	return all
}

// newSpare forks a spare process. birth is its own then.
func (e *Engine) newSpare(b birth, group string, s *slot) (*spare, error) {
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
	one.timer = time.AfterFunc(spareTime, func() { s.retire(one, e) })
	return one, nil
}

// waitsFor says whether the process is there, and was born so.
func (s *spare) waitsFor(b *birth) bool { return s != nil && !s.hasEnded() && s.birth.like(b) }

// end ends the spare process, and returns when it is gone. There will be none here any more.
func (s *slot) end(e *Engine) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.drop(e)
}

// retire ends a spare process that nobody wanted. What it leaves is removed with the pod.
func (s *slot) retire(one *spare, e *Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare == one {
		_ = s.drop(e)
	}
}

// drop ends the spare process, if there is one. The caller holds the slot's lock.
func (s *slot) drop(e *Engine) error {
	one := s.spare
	if one == nil {
		return nil
	}
	s.spare = nil
	one.timer.Stop()
	one.birth.close()
	return e.discard(one.newborn)
}

// take gives a spare process away that can become the first of this container, whose birth would be b; nil if there is none.
func (e *Engine) take(c *shim.Bundle, b *birth) *newborn {
	if b.io.Terminal || isScope(c.Spec) { // it would have to get a terminal; systemd moves a process itself
		return nil
	}
	group := cgroupPath(c)
	for _, s := range e.stock.beside(group) {
		if n := s.take(group, b, e); n != nil {
			return n
		}
	}
	return nil
}

func (s *slot) take(group string, b *birth, e *Engine) *newborn {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.spare
	switch {
	case one == nil || !one.birth.like(b) || !one.group.canRename(group):
		return nil
	case one.hasEnded():
		_ = s.drop(e) // as in retire
		return nil
	case !one.timer.Stop():
		return nil
	}
	s.spare = nil
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
	g, err := openCgroup(b, n.group.pathsAs(cgroupPath(b)))
	if err != nil {
		return nil, err
	}
	if err := n.group.rename(g.path); err != nil {
		return nil, fmt.Errorf("%w: %w", errSpare, err)
	}
	if err := g.limit(); err != nil {
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
