package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/message"
	"github.com/sunaba-project/sunaba/shim/shared/handoff"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// successor is the service of a shim whose predecessor has died.
type successor struct{ *Service }

// adoptAll adopts what an earlier shim left, before anybody can call.
func (s successor) adoptAll(ctx context.Context) {
	if s.handoff == nil {
		return
	}
	s.history = s.handoff.History()
	for _, r := range s.handoff.Remains() {
		switch err := s.adopt(ctx, r); {
		case errors.Is(err, errUnanswered):
			s.options.Logger.Info("removing unfinished container", "container", r.ID, "reason", err)
			s.endRemains(r, "")
		case err != nil:
			s.history.Lost++
			s.note(err, "adopt container", r.ID)
			s.endRemains(r, "the shim died, and its successor failed to adopt the container: "+err.Error())
		default:
			s.history.Adopted++
		}
	}
	if err := s.handoff.KeepHistory(s.history); err != nil {
		s.options.Logger.Error("failed to record history", "error", err)
	}
}

// errUnanswered is why a container is not adopted whose creation was never answered.
var errUnanswered = errors.New("its creation was not over")

// adopt adopts one container. errUnanswered if its caller was never told of it. On error nothing
// has changed.
func (s successor) adopt(ctx context.Context, left *handoff.Remains) error {
	if left.Bundle != "" && left.Version != handoff.Version {
		return fmt.Errorf("what the shim left of container %q has format version %d, and this release reads %d: create the container again",
			left.ID, left.Version, handoff.Version)
	}
	t, err := bundle.ReadTask(left.Bundle)
	if errdefs.IsNotFound(err) || err == nil && t.Stage == "" {
		return errUnanswered
	}
	if err != nil {
		return err
	}
	var request message.CreateTaskRequest
	if err := message.Unmarshal(t.Request, &request); err != nil {
		return fmt.Errorf("decode request: %w", err)
	}
	r, err := taskAPI{s.Service}.read(&request)
	if err != nil {
		return err
	}
	if t.Stage == bundle.Created && t.PID == 0 {
		return s.repeat(ctx, left, r)
	}
	c, err := s.readopt(ctx, left, r, t)
	if err != nil {
		return err
	}
	s.table.add(c)
	return nil
}

// repeat creates a container again that had no process yet: nothing is lost.
func (s successor) repeat(ctx context.Context, left *handoff.Remains, r createRequest) error {
	left.Close()
	if _, err := s.options.Remove(left.Bundle, left.ID); err != nil {
		return err
	}
	s.dropHandoff(left.ID)
	_, err := s.add(ctx, r)
	return err
}

// readopt makes a container of what is left of it.
func (s successor) readopt(ctx context.Context, left *handoff.Remains, r createRequest, t bundle.Task) (*container, error) {
	b, engine, err := s.adopter(left, &r, t)
	if err != nil {
		return nil, err
	}
	console := left.Streams["console"]
	streams, err := stdio.Adopt(r.streams, left.Streams)
	if err != nil {
		return nil, err
	}
	a := shim.Adoption{
		Task: t, PID: t.PID, Started: t.Stage == bundle.Started, Starting: t.Stage == bundle.Starting, Kept: left.Box,
		IO: shim.IO{Terminal: r.streams.Terminal, Console: console},
	}
	if exit, known := bundle.ReadExit(b.Path); known {
		a.Exit = &exit
	}
	ec, err := engine.Adopt(ctx, b, a)
	if err != nil {
		streams.Close()
		return nil, err
	}
	c := newContainer(b, ec, streams, r, s.handoff)
	c.startMakesInit = false
	c.init.startedAt, c.init.told = t.StartedAt, t.Told
	if t.Stage != bundle.Created {
		c.init.state = running
	}
	c.init.connect()
	if a.Exit != nil {
		c.init.end(*a.Exit, func() {})
		s.note(s.handoff.Forget(t.PID), "forget process", c.id)
		return c, nil
	}
	s.resume(ctx, c, left, t)
	return c, nil
}

// adopter finds the bundle of a container and the engine that made it.
func (s successor) adopter(left *handoff.Remains, r *createRequest, t bundle.Task) (*shim.Bundle, shim.Adopter, error) {
	spec, err := bundle.ReadSpec(left.Bundle)
	if err != nil {
		return nil, nil, err
	}
	b, err := s.bundle(*r, spec)
	if err != nil {
		return nil, nil, err
	}
	r.streams.Limits = b.Facts.LogLimits
	r.streams.AwaitAttach = b.Facts.AwaitAttach && t.Stage != bundle.Started // else somebody was attached
	if len(r.Rootfs) > 0 {
		b.Rootfs = filepath.Join(b.Path, bundle.RootfsName)
	}
	engine, err := s.engines.adopter(t.Engine)
	if err != nil {
		return nil, nil, err
	}
	return b, engine, nil
}

// resume makes a container that is not known to have ended what it was.
func (s successor) resume(ctx context.Context, c *container, left *handoff.Remains, t bundle.Task) {
	group, err := cgroup.Open(c.engine.Cgroup())
	if err == nil && c.engine.Cgroup() != "" {
		c.kills = s.kills.Reopen(group)
		if t.Engine != shim.PauseName { // it executes nothing, and its group may be the pod's
			s.note(endExecs(ctx, group, c.init.engine.Pid(), left.Execs, c.ownPids), "end what was executed", c.id)
		}
		switch frozen := group.Frozen(); {
		case frozen && t.Paused:
			c.init.state = paused
		case frozen: // a runtime had it stand still for a moment, and died with the shim
			s.note(c.engine.Resume(ctx), "resume container", c.id)
		}
	}
	if t.Stage == bundle.Starting {
		if t.StartedAt.IsZero() {
			c.init.startedAt = time.Now()
		}
		s.note(c.started(c.init.startedAt), "record start", c.id)
	}
	go s.watchInit(c)
}

// endRemains ends a container that is not adopted. Its end is recorded with the reason, unless that
// is "": nobody was ever told of the container.
func (s successor) endRemains(left *handoff.Remains, reason string) {
	left.Close()
	pid := bundle.ReadPid(left.Bundle)
	exit, err := s.options.Remove(left.Bundle, left.ID)
	s.note(err, "remove container", left.ID)
	if pid != 0 {
		s.note(s.handoff.Forget(pid), "forget process", left.ID)
	}
	if _, known := bundle.ReadExit(left.Bundle); !known && reason != "" {
		exit.Message = reason
		s.note(bundle.WriteExit(left.Bundle, exit), "record exit", left.ID)
	}
	if err == nil {
		s.dropHandoff(left.ID)
	}
}

// endExecs kills what a dead shim had executed in a container, with what that started as far as its
// parents live: their sessions are lost. The parent of such a process is the supervisor now. In a
// container with a PID namespace of its own no other process except init has that parent. Elsewhere
// it is also the parent of daemons, so only those that are recorded are meant.
func endExecs(ctx context.Context, group *cgroup.Group, init int, recorded []int, ownPids bool) error {
	heir := os.Getppid()
	var tree cgroup.Tree
	err := tree.Grow(ctx, group, func(pid int, from cgroup.Descent) bool {
		orphan := from.Parent == heir && (ownPids || slices.Contains(recorded, pid))
		return pid != init && (orphan || tree.Has(from.Parent))
	})
	return errors.Join(err, tree.Kill())
}
