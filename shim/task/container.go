package task

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/oomscore"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/shared/handoff"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// killTime is how long what a container left running may take to die.
const killTime = 10 * time.Second

// dyingTime is how long the end of a container may take that failed the start of a command in it.
const dyingTime = 100 * time.Millisecond

// container is a created container with its processes. It does not keep the bundle's
// specification, which is large.
type container struct {
	id      string
	path    string // bundle
	ownPids bool   // it has a PID namespace of its own, which dies with its init
	engine  shim.Container
	init    *process
	// startMakesInit says that init did not exist before its start: it is made from a checkpoint,
	// or launched.
	startMakesInit bool
	oomTold        bool             // an event told of a kill for lack of memory; under init's lock
	kills          *cgroup.Kills    // for lack of memory, until init has ended; nil = it has no group
	handoff        *handoff.Handoff // nil without a supervisor
	execs          execs
	message        string // file of the host for its termination message, if the caller is told of no other; "" = none
}

// newContainer makes a container of what an engine has made.
func newContainer(b *shim.Bundle, ec shim.Container, s *stdio.Streams, r createRequest, h *handoff.Handoff) *container {
	c := &container{id: b.ID, path: b.Path, ownPids: ownPids(b.Spec), engine: ec, handoff: h}
	c.init = newProcess("", ec.Init(), s, r.streams)
	c.startMakesInit = c.init.pid() == 0
	return c
}

func ownPids(spec *specs.Spec) bool {
	if spec.Linux == nil {
		return false
	}
	for _, ns := range spec.Linux.Namespaces {
		if ns.Type == specs.PIDNamespace {
			return ns.Path == ""
		}
	}
	return false
}

// settle is what has to be done once the engine has made the container.
func (c *container) settle(spec *specs.Spec, t bundle.Task) error {
	if c.startMakesInit {
		return c.keepStreams(true)
	}
	c.init.connect()
	if err := c.keepStreams(true); err != nil {
		return err
	}
	return c.record(spec, t)
}

// record writes what cleaning up after a dead shim needs, and undoes what init inherited from the
// shim.
func (c *container) record(spec *specs.Spec, t bundle.Task) error {
	pid := c.init.engine.Pid()
	if spec.Process != nil && spec.Process.OOMScoreAdj == nil {
		// The shim is the last that memory shortage should hit; its containers are not.
		_ = oomscore.Set(pid, 0)
	}
	if path := c.engine.Cgroup(); path != t.Cgroup {
		t.Cgroup = path
		if err := bundle.WriteTask(c.path, t); err != nil {
			return err
		}
	}
	return bundle.WritePid(c.path, pid)
}

// destroy ends a container whatever it does, and releases it.
func (c *container) destroy() error {
	if c.kills != nil {
		defer c.kills.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	if err := c.init.engine.Signal(ctx, syscall.SIGKILL, false); err == nil {
		select {
		case <-c.init.engine.Exited():
		case <-ctx.Done():
		}
	}
	return c.engine.Delete(ctx)
}

// release gives back everything of a container that has ended. It may be called again after an
// error.
func (c *container) release(ctx context.Context) error {
	if err := c.engine.Delete(ctx); err != nil {
		return err
	}
	c.init.streams.Close()
	c.execs.close()
	if err := errors.Join(bundle.UnmountRoot(c.path), bundle.UnmapVolumes(c.path), bundle.UnmountImages(c.path)); err != nil {
		return err
	}
	return bundle.Forget(c.path)
}

// process finds a process, "" = init.
func (c *container) process(execID string) (*process, error) {
	if execID == "" {
		return c.init, nil
	}
	if p := c.execs.find(execID); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("process %q of container %q: %w", execID, c.id, errdefs.ErrNotFound)
}

// exec prepares a further process.
func (c *container) exec(ctx context.Context, id string, spec *specs.Process, names stdio.Config) (err error) {
	if !c.execs.reserve(id) {
		return fmt.Errorf("process %q of container %q: %w", id, c.id, errdefs.ErrAlreadyExists)
	}
	var p *process
	defer func() { c.execs.settle(id, p) }()
	if st, _ := c.init.snapshot(); st != running && (st != created || c.startMakesInit) {
		// Who asked knows which one, by a name that a shim has not.
		return fmt.Errorf("the container is %s: %w", st, errdefs.ErrFailedPrecondition)
	}
	streams, err := stdio.Open(ctx, names)
	if err != nil {
		return err
	}
	ep, err := c.engine.Exec(ctx, id, spec, childIO(streams, names.Terminal))
	if err != nil {
		streams.Close()
		return err
	}
	p = newProcess(id, ep, streams, names)
	return nil
}

// endsSoon says whether init ends within dyingTime: a kill is there before its end is seen.
func (c *container) endsSoon() bool {
	select {
	case <-c.init.engine.Exited():
		return true
	case <-time.After(dyingTime):
		return false
	}
}

// endUnstarted ends a container whose first process never existed.
func (c *container) endUnstarted() bool {
	st, _ := c.init.snapshot()
	if st != created || c.init.pid() != 0 {
		return false
	}
	if c.kills != nil {
		c.kills.Close()
	}
	c.init.end(shim.Exit{Code: 128 + uint32(syscall.SIGKILL), At: time.Now()}, func() {})
	return true
}

// group is the container's cgroup. containerd asks for its figures every second, so the one that is
// open is taken.
func (c *container) group() (*cgroup.Group, error) {
	if c.kills != nil && c.kills.Group().Path() == c.engine.Cgroup() {
		return c.kills.Group(), nil
	}
	return cgroup.Open(c.engine.Cgroup())
}
