package engine

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

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// prewarmTime is how long a prewarmed process waits for its container.
const prewarmTime = 10 * time.Second

// errPrewarmed says that the prewarmed process failed, not the container. A forked one is tried
// then.
var errPrewarmed = errors.New("prewarmed guest process failed")

// maxPrewarmed bounds the prewarmed processes of one engine. One that is asked for beyond that
// takes the place of the one that was asked for longest ago.
const maxPrewarmed = 32

// maxClaims bounds the cgroups of containers that the engine remembers: a request for a process in
// one of them comes at most a few seconds too late.
const maxClaims = 8 * maxPrewarmed

// stock is the engine's prewarmed guest processes, at most one for each pod: one that was started
// before its container is asked for, in the pod's namespaces and in the cgroup that will be the
// container's. It has nothing that a process forked for a container does not have, and waits as
// that does for its configuration. It ends when no container comes for a while, with its pod, and
// with the shim.
type stock struct {
	mu      sync.Mutex
	slots   map[string]*slot // by pod
	claimed []string         // cgroups that are containers', the last ones
	closed  bool
}

// slot is where the prewarmed process of one pod is, or was.
type slot struct {
	asked time.Time // for a process, the last time; under the stock's lock
	leaf  string    // the process's cgroup, see leafOf; under the stock's lock

	mu        sync.Mutex // held while the process is made or ended, which takes milliseconds
	prewarmed *prewarmed // nil = none
	over      bool       // there will be none any more
}

type prewarmed struct {
	*newborn
	birth    birth
	leaf     string
	oomGroup string // of a scope, see atBirth
	timer    *time.Timer
}

// Prepare implements shim.Preparer: it makes sure that the pod has a prewarmed process in this
// cgroup, for a while.
func (e *Engine) Prepare(_ context.Context, p shim.Preparation) error {
	spec := &specs.Spec{Linux: &specs.Linux{Namespaces: p.Namespaces, CgroupsPath: p.Cgroup}}
	if !path.IsAbs(p.Cgroup) && !isScope(spec) {
		return nil
	}
	b, err := initBirth(spec)
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	leaf := leafOf(&shim.Bundle{Spec: spec})
	s := e.stock.open(p.Pod, e)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer compile.Warm()
	if s.over || s.prewarmed.waitsFor(&b, leaf) && s.prewarmed.timer.Reset(prewarmTime) {
		b.close()
		return nil
	}
	err = s.drop(e)
	if !e.stock.assign(s, leaf) {
		b.close()
		return err
	}
	if err == nil {
		s.prewarmed, err = e.newPrewarmed(b, p, s)
	}
	if err != nil {
		b.close()
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}

// Vacate implements shim.Preparer.
func (e *Engine) Vacate(cgroup string) {
	leaf := leafOf(&shim.Bundle{Spec: &specs.Spec{Linux: &specs.Linux{CgroupsPath: cgroup}}})
	if s := e.stock.claim(leaf); s != nil {
		s.give(leaf, func(*prewarmed) bool { return false }, e)
	}
}

// Unprepare implements shim.Preparer: it ends the prewarmed process, and returns when it is gone.
func (e *Engine) Unprepare(_ context.Context, pod string) error {
	return e.stock.open(pod, e).end(e) // the slot stays, for requests that come too late
}

// Close implements shim.Preparer: it ends all prewarmed processes, and returns when they have
// exited. No more are started.
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

// open is the slot of a pod. If there are too many then, the one that was asked for longest ago is
// removed.
func (s *stock) open(pod string, e *Engine) *slot {
	s.mu.Lock()
	one := s.slots[pod]
	if one == nil {
		if s.slots == nil {
			s.slots = make(map[string]*slot)
		}
		one = &slot{over: s.closed}
		s.slots[pod] = one
	}
	one.asked = time.Now()
	s.mu.Unlock()
	for {
		oldest, surplus := s.surplus()
		if surplus == nil {
			return one
		}
		_ = surplus.end(e) // as in retire
		s.mu.Lock()        // until now a container that has its cgroup finds it
		if s.slots[oldest] == surplus {
			delete(s.slots, oldest)
		}
		s.mu.Unlock()
	}
}

// surplus is the slot that was asked for longest ago, nil while there are not too many.
func (s *stock) surplus() (oldest string, one *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.slots) <= maxPrewarmed {
		return "", nil
	}
	for pod, other := range s.slots {
		if one == nil || other.asked.Before(one.asked) {
			oldest, one = pod, other
		}
	}
	return oldest, one
}

// assign makes a cgroup the one of a slot's process, unless it is a container's. The caller holds
// the slot's lock.
func (s *stock) assign(one *slot, leaf string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.claimed, leaf) {
		return false
	}
	one.leaf = leaf
	return true
}

// claim makes a cgroup a container's: no process is prewarmed there from now on. It returns the
// slot whose process may be there, or is being made or ended there; nil if there is none.
func (s *stock) claim(leaf string) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.claimed, leaf) {
		s.claimed = append(s.claimed, leaf)
		s.claimed = s.claimed[max(len(s.claimed)-maxClaims, 0):]
	}
	for _, one := range s.slots {
		if one.leaf == leaf {
			return one
		}
	}
	return nil
}

// newPrewarmed forks a prewarmed process. birth is its own then.
func (e *Engine) newPrewarmed(b birth, p shim.Preparation, s *slot) (*prewarmed, error) {
	bundle := &shim.Bundle{Spec: &specs.Spec{Linux: &specs.Linux{CgroupsPath: p.Cgroup}}}
	one := &prewarmed{leaf: leafOf(bundle)}
	if isScope(bundle.Spec) && p.OOMGroup != "" {
		one.oomGroup = p.OOMGroup
		bundle.Spec.Linux.Resources = &specs.LinuxResources{Unified: map[string]string{oomGroupFile: p.OOMGroup}}
	}
	b.cgroup = later(func() (*limited, error) { return newCgroup(bundle) })
	n := e.fork(&b)
	var err error
	n.group, err = b.cgroup()
	if err = errors.Join(err, n.err); err == nil {
		err = e.settle(n, &b)
	}
	if err != nil {
		return nil, errors.Join(err, e.discard(n))
	}
	n.prewarmed = true
	one.newborn, one.birth = n, b
	one.timer = time.AfterFunc(prewarmTime, func() { s.retire(one, e) })
	return one, nil
}

// waitsFor says whether the process is there, in this cgroup, and was born so.
func (s *prewarmed) waitsFor(b *birth, leaf string) bool {
	return s != nil && !closed(s.child.Done) && s.leaf == leaf && s.birth.like(b)
}

// end ends the prewarmed process, and returns when it is gone. There will be none here any more.
func (s *slot) end(e *Engine) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.drop(e)
}

// retire ends a prewarmed process whose container did not come. What it leaves is removed with the
// pod.
func (s *slot) retire(one *prewarmed, e *Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prewarmed == one {
		_ = s.drop(e)
	}
}

// drop ends the prewarmed process, if there is one. The caller holds the slot's lock.
func (s *slot) drop(e *Engine) error {
	one := s.prewarmed
	if one == nil {
		return nil
	}
	s.prewarmed = nil
	one.timer.Stop()
	one.birth.close()
	return e.discard(one.newborn)
}

// take gives away the process that waits in this container's cgroup, if it can become its first,
// whose birth would be b; nil if there is none. One that cannot is ended.
func (e *Engine) take(c *shim.Bundle, b *birth) *newborn {
	leaf := leafOf(c)
	s := e.stock.claim(leaf)
	if s == nil {
		return nil
	}
	oomGroup, realtime := atBirth(c.Spec)
	return s.give(leaf, func(one *prewarmed) bool {
		// A terminal would have to be given to it.
		return !b.io.Terminal && !realtime && one.oomGroup == oomGroup && one.birth.like(b) && !closed(one.child.Done)
	}, e)
}

// give gives away the process that waits in this cgroup if it is wanted, and otherwise ends it.
func (s *slot) give(leaf string, wanted func(*prewarmed) bool, e *Engine) *newborn {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.prewarmed
	if one == nil || one.leaf != leaf {
		return nil
	}
	if !wanted(one) || !one.timer.Stop() {
		_ = s.drop(e) // as in retire
		return nil
	}
	s.prewarmed = nil
	one.birth.close()
	return one.newborn
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

// makeCgroup makes the container's cgroup. That of a prewarmed process is there, with the process,
// and gets the container's limits. Of one that could not be completed it returns what was made.
func (n *newborn) makeCgroup(b *shim.Bundle) (*limited, error) {
	if n == nil {
		return newCgroup(b)
	}
	g, err := openCgroup(b, n.group.manager.GetPaths())
	if err != nil {
		return nil, err
	}
	if err := g.limit(); err != nil {
		return g, fmt.Errorf("%w: %w", errPrewarmed, err)
	}
	return g, nil
}

// blame says of an error of a process that was to become a container's first whether it may be due
// to its having been prewarmed.
func (n *newborn) blame(err error) error {
	var f *failure
	if !n.prewarmed || errors.As(err, &f) && f.message.Class != link.Internal {
		return err
	}
	return fmt.Errorf("%w: %w", errPrewarmed, err)
}
