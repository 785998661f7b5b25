package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/cgroup"
	"github.com/sunaba-project/sunaba/shim/keeper"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// estate is what a dead shim left of one container.
type estate struct {
	id      string
	bundle  string
	streams map[string]*os.File
	execs   []int // pids of what was executed
	box     map[string]keeper.Kept
}

// adoptAll takes over what an earlier shim left, before anybody can call.
func (s *Service) adoptAll(ctx context.Context) {
	if s.options.Keeper == nil {
		return
	}
	left := s.options.Keeper.Left()
	s.history = recall(left, s.options.Keeper.Life())
	for _, e := range estates(left) {
		switch err := s.adopt(ctx, e); {
		case errors.Is(err, errUnanswered):
			s.options.Logger.Info("take back container", "container", e.id, "reason", err)
			s.bury(e, "")
		case err != nil:
			s.history.Lost++
			s.note(err, "adopt container", e.id)
			s.bury(e, "the shim died, and its successor could not take over: "+err.Error())
		default:
			s.history.Adopted++
		}
	}
	if err := s.recordHistory(); err != nil {
		s.options.Logger.Error("record history", "error", err)
	}
}

// estates sorts what was kept by containers.
func estates(left []keeper.Kept) []*estate {
	var all []*estate
	for _, k := range left { // sorted by key
		if k.Key == keptHistory {
			continue
		}
		id, _, _ := strings.Cut(k.Key, "/")
		if len(all) == 0 || all[len(all)-1].id != id {
			all = append(all, &estate{id: id, streams: map[string]*os.File{}, box: map[string]keeper.Kept{}})
		}
		all[len(all)-1].add(strings.TrimPrefix(k.Key, id), k)
	}
	return all
}

func (e *estate) add(key string, k keeper.Kept) {
	name, boxed := strings.CutPrefix(key, keptBox)
	switch {
	case key == keptBundle:
		e.bundle = string(k.Note)
	case key == keptStdin && len(k.Files) == 1:
		e.streams[stdio.EndStdin] = k.Files[0]
	case key == keptStreams:
		for i, name := range strings.Fields(string(k.Note)) {
			if i < len(k.Files) {
				e.streams[name] = k.Files[i]
			}
		}
	case strings.HasPrefix(key, keptExec):
		if pid, err := strconv.Atoi(string(k.Note)); err == nil {
			e.execs = append(e.execs, pid)
		}
	case boxed:
		e.box[name] = k
	}
}

// close closes what nobody took.
func (e *estate) close() {
	for _, f := range e.streams {
		f.Close()
	}
	for _, k := range e.box {
		for _, f := range k.Files {
			f.Close()
		}
	}
}

// errUnanswered is why a container is not adopted that its caller was never told of.
var errUnanswered = errors.New("its creation was not over")

// adopt takes over one container, or takes it back if nobody was ever told of it. On error there is still what there was.
func (s *Service) adopt(ctx context.Context, e *estate) error {
	t, err := bundle.ReadTask(e.bundle)
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
		return s.repeat(ctx, e, r)
	}
	c, err := s.takeOver(ctx, e, r, t)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.containers[c.id] = c
	s.mu.Unlock()
	return nil
}

// repeat makes a container anew that had no process yet: nothing is lost.
func (s *Service) repeat(ctx context.Context, e *estate, r createRequest) error {
	e.close()
	if _, err := s.options.Remove(e.bundle, e.id); err != nil {
		return err
	}
	s.letGo(e.id)
	_, err := s.add(ctx, r)
	return err
}

// takeOver makes a container of what is left of it.
func (s *Service) takeOver(ctx context.Context, e *estate, r createRequest, t bundle.Task) (*container, error) {
	b, engine, err := s.adopter(e, &r, t)
	if err != nil {
		return nil, err
	}
	console := e.streams["console"]
	streams, err := stdio.Adopt(r.streams, e.streams)
	if err != nil {
		return nil, err
	}
	a := Adoption{
		Task: t, PID: t.PID, Started: t.Stage == bundle.Started, Starting: t.Stage == bundle.Starting, Kept: e.box,
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
		s.note(s.options.Keeper.Forget(t.PID), "forget process", c.id)
		return c, nil
	}
	s.goOn(ctx, c, e, t)
	return c, nil
}

// adopter finds the bundle of a container and the engine that made it.
func (s *Service) adopter(e *estate, r *createRequest, t bundle.Task) (*Bundle, Adopter, error) {
	spec, err := bundle.ReadSpec(e.bundle)
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

// goOn makes a container that is not known to have ended what it was.
func (s *Service) goOn(ctx context.Context, c *container, e *estate, t bundle.Task) {
	group, err := cgroup.Open(c.engine.Cgroup())
	if err == nil && c.engine.Cgroup() != "" {
		c.kills = s.kills.Reopen(group)
		if t.Engine != pauseName { // it executes nothing, and its group may be the pod's
			s.note(endExecs(ctx, group, c.init.engine.Pid(), e.execs, c.ownPids), "end what was executed", c.id)
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

// bury ends a container that is not adopted. How it ended is written down, with a message, unless that is "": it was nobody's.
func (s *Service) bury(e *estate, message string) {
	e.close()
	exit, err := s.options.Remove(e.bundle, e.id)
	s.note(err, "remove container", e.id)
	if _, known := bundle.ReadExit(e.bundle); !known && message != "" {
		exit.Message = message
		s.note(bundle.WriteExit(e.bundle, exit), "record exit", e.id)
	}
	if err == nil {
		s.letGo(e.id)
	}
}
