package shim

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/shared/handoff"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// adoptAll adopts what an earlier shim left, before anybody can call.
func (s *Service) adoptAll(ctx context.Context) {
	if s.handoff == nil {
		return
	}
	s.history = s.handoff.History()
	for _, r := range s.handoff.Remains() {
		switch err := s.adopt(ctx, r); {
		case errors.Is(err, errUnanswered):
			s.options.Logger.Info("remove container", "container", r.ID, "reason", err)
			s.endRemains(r, "")
		case err != nil:
			s.history.Lost++
			s.note(err, "adopt container", r.ID)
			s.endRemains(r, "the shim died, and its successor could not take over: "+err.Error())
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
func (s *Service) adopt(ctx context.Context, left *handoff.Remains) error {
	t, err := bundle.ReadTask(left.Bundle)
	if errdefs.IsNotFound(err) || err == nil && t.Stage == "" {
		return errUnanswered
	}
	if err != nil {
		return err
	}
	var wire task.CreateTaskRequest
	if err := proto.Unmarshal(t.Request, &wire); err != nil {
		return fmt.Errorf("decode request: %w", err)
	}
	r, err := taskAPI{s}.read(&wire)
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
	s.mu.Lock()
	s.containers[c.id] = c
	s.mu.Unlock()
	return nil
}

// repeat creates a container again that had no process yet: nothing is lost.
func (s *Service) repeat(ctx context.Context, left *handoff.Remains, r createRequest) error {
	left.Close()
	if _, err := s.options.Remove(left.Bundle, left.ID); err != nil {
		return err
	}
	s.dropHandoff(left.ID)
	_, err := s.add(ctx, r)
	return err
}

// readopt makes a container of what is left of it.
func (s *Service) readopt(ctx context.Context, left *handoff.Remains, r createRequest, t bundle.Task) (*container, error) {
	b, engine, err := s.adopter(left, &r, t)
	if err != nil {
		return nil, err
	}
	console := left.Streams["console"]
	streams, err := stdio.Adopt(r.streams, left.Streams)
	if err != nil {
		return nil, err
	}
	a := Adoption{
		Task: t, PID: t.PID, Started: t.Stage == bundle.Started, Starting: t.Stage == bundle.Starting, Kept: left.Box,
		IO: IO{Terminal: r.streams.Terminal, Console: console},
	}
	if exit, known := bundle.ReadExit(b.Path); known {
		a.Exit = &exit
	}
	ec, err := engine.Adopt(ctx, b, a)
	if err != nil {
		streams.Close()
		return nil, err
	}
	c := s.made(b, ec, streams, r)
	c.unborn = false
	c.init.began, c.init.told = t.Began, t.Told
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
func (s *Service) adopter(left *handoff.Remains, r *createRequest, t bundle.Task) (*Bundle, Adopter, error) {
	spec, err := bundle.ReadSpec(left.Bundle)
	if err != nil {
		return nil, nil, err
	}
	if r.streams.Limits, err = stdio.ParseLimits(spec.Annotations[AnnotationLogLimits]); err != nil {
		return nil, nil, fmt.Errorf("annotation %s: %w", AnnotationLogLimits, err)
	}
	b := s.bundle(*r, spec)
	if len(r.rootfs) > 0 {
		b.Rootfs = filepath.Join(b.Path, bundle.RootfsName)
	}
	i := slices.IndexFunc(s.options.Engines, func(e Engine) bool { return e.Name() == t.Engine })
	if i < 0 {
		return nil, nil, fmt.Errorf("there is no engine %q: %w", t.Engine, errdefs.ErrNotFound)
	}
	engine, ok := s.options.Engines[i].(Adopter)
	if !ok {
		return nil, nil, fmt.Errorf("engine %q adopts no containers: %w", t.Engine, errdefs.ErrNotImplemented)
	}
	return b, engine, nil
}

// resume makes a container that is not known to have ended what it was.
func (s *Service) resume(ctx context.Context, c *container, left *handoff.Remains, t bundle.Task) {
	group, err := cgroup.Open(c.engine.Cgroup())
	if err == nil && c.engine.Cgroup() != "" {
		c.kills = s.kills.Reopen(group)
		if t.Engine != pauseName { // it executes nothing, and its group may be the pod's
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
		if t.Began.IsZero() {
			c.init.began = time.Now()
		}
		s.note(c.started(c.init.began), "record start", c.id)
	}
	go s.watchInit(c)
}

// endRemains ends a container that is not adopted. Its end is recorded with a message, unless that
// is "": nobody was ever told of the container.
func (s *Service) endRemains(left *handoff.Remains, message string) {
	left.Close()
	exit, err := s.options.Remove(left.Bundle, left.ID)
	s.note(err, "remove container", left.ID)
	if _, known := bundle.ReadExit(left.Bundle); !known && message != "" {
		exit.Message = message
		s.note(bundle.WriteExit(left.Bundle, exit), "record exit", left.ID)
	}
	if err == nil {
		s.dropHandoff(left.ID)
	}
}
