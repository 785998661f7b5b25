package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/shared/handoff"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// execTime is how long the end of a container waits for the ends of the processes executed in it to be announced.
const execTime = 2 * time.Second

// Publisher announces events to containerd.
type Publisher interface {
	// Publish hands on one event without waiting; events of one publisher keep their order.
	Publish(Event)
}

// ServiceOptions is what a service works with.
type ServiceOptions struct {
	Namespace   string
	Engines     []Engine                               // in the order they are asked
	RuntimeRoot string                                 // the OCI runtime's --root for callers that give none
	Publisher   Publisher                              // nil = nobody listens
	Run         func(*exec.Cmd) (stdio.Program, error) // starts and reaps programs that take containers' output; nil = there are none
	Settled     func()                                 // called before and after work for a container (create, start, delete): soon is a good moment to give memory back; may be nil
	Asked       func()                                 // called after a call that containerd makes every second; may be nil
	Done        func()                                 // called once, when Shutdown was asked and no container is left (Serve sets it)
	Ending      func()                                 // called by Serve before callers see the end: remove the socket; may be nil
	Supervisor  Supervisor                             // nil = the containers end with the shim
	Remove      func(dir, id string) (Exit, error)     // with a Supervisor: ends a container and removes what there is of it, from its bundle alone
	Logger      *slog.Logger
}

// Service owns the containers of one pod and answers the Task API for them.
type Service struct {
	options ServiceOptions
	ending  sync.Once
	kills   cgroup.Ledger    // of all containers
	handoff *handoff.Handoff // nil without a supervisor
	history api.History      // with a supervisor; set before anybody can call

	mu         sync.Mutex
	containers map[string]*container    // nil while being created
	making     map[string]chan struct{} // closed when that creation has ended
	launches   map[string]func()        // what cancels the creation of a container whose start follows at once
}

// NewService makes a service without containers.
func NewService(o ServiceOptions) *Service {
	if o.Settled == nil {
		o.Settled = func() {}
	}
	if o.Asked == nil {
		o.Asked = func() {}
	}
	return &Service{
		options: o, handoff: handoff.New(o.Supervisor, o.Logger), containers: make(map[string]*container), making: make(map[string]chan struct{}),
		launches: make(map[string]func()),
	}
}

// container finds a container.
func (s *Service) container(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("container %q: %w", id, errdefs.ErrNotFound)
}

func (s *Service) process(id, execID string) (*container, *process, error) {
	c, err := s.container(id)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.process(execID)
	return c, p, err
}

// add creates a container under a name that is taken from the begin. A creation of the same name that is under way is waited
// for: its caller may be gone, and it is taken back then. Delete ends a creation that is a part of a launch.
func (s *Service) add(ctx context.Context, r createRequest) (c *container, err error) {
	if err := s.reserve(ctx, r.id); err != nil {
		return nil, err
	}
	defer func() { s.settle(r.id, c) }()
	if r.launch {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		s.mu.Lock()
		s.launches[r.id] = cancel
		s.mu.Unlock()
	}
	if c, err = s.create(ctx, r); err != nil {
		return nil, err
	}
	if r.launch && c.unborn { // it is not answered before it is started
		return c, nil
	}
	if err := c.own(); err != nil {
		s.takeBack(ctx, c)
		return nil, err
	}
	return c, nil
}

// settle ends a creation; c is nil if there is no container.
func (s *Service) settle(id string, c *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c == nil {
		delete(s.containers, id)
	} else {
		s.containers[id] = c
	}
	close(s.making[id])
	delete(s.making, id)
	delete(s.launches, id)
}

// reserve takes a name for a creation.
func (s *Service) reserve(ctx context.Context, id string) error {
	for {
		if err := s.settled(ctx, id); err != nil {
			return err
		}
		s.mu.Lock()
		_, taken := s.containers[id]
		again := s.making[id] != nil
		if !taken {
			s.containers[id], s.making[id] = nil, make(chan struct{})
		}
		s.mu.Unlock()
		switch {
		case !taken:
			return nil
		case !again:
			return fmt.Errorf("container %q: %w", id, errdefs.ErrAlreadyExists)
		}
	}
}

// settled waits until no creation of that name is under way: it is known then whether there is such a container.
func (s *Service) settled(ctx context.Context, id string) error {
	s.mu.Lock()
	making := s.making[id]
	s.mu.Unlock()
	if making == nil {
		return nil
	}
	select {
	case <-making:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("container %q is being created: %w", id, ctx.Err())
	}
}

// giveUp ends the creation of a container whose start was to follow at once, and returns when it has ended.
func (s *Service) giveUp(ctx context.Context, id string) error {
	s.mu.Lock()
	cancel := s.launches[id]
	s.mu.Unlock()
	if cancel == nil {
		return nil
	}
	cancel()
	return s.settled(ctx, id)
}

// watchInit waits for init's end, writes down how it ended, and only then announces it.
func (s *Service) watchInit(c *container) {
	stop := s.watchOOM(c)
	<-c.init.engine.Exited()
	exit := s.lastRites(c)
	stop()
	s.note(bundle.WriteExit(c.path, exit), "record exit", c.id)
	s.note(c.handoff.Forget(c.init.engine.Pid()), "forget process", c.id)
	c.waitExecs(execTime) // they ended before, and are to be heard of before
	c.init.end(exit, func() {
		if exit.OOMKilled && !c.oomTold {
			s.publish(oomEvent(c.id))
		}
		s.publishExit(c, c.id, c.init, exit)
	})
}

// watchOOM announces, while the container runs, that something in it was killed for lack of memory. It does nothing when
// nobody listens: how the container ended is written down anyway.
func (s *Service) watchOOM(c *container) (stop func()) {
	nothing := func() {}
	if s.options.Publisher == nil || c.engine.Cgroup() == "" {
		return nothing
	}
	group, err := cgroup.Open(c.engine.Cgroup())
	if err != nil {
		s.note(err, "watch memory", c.id)
		return nothing
	}
	stop, err = group.WatchOOM(func(uint64) {
		c.init.alive(func() {
			c.oomTold = true
			s.publish(oomEvent(c.id))
		})
	})
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) { // it has ended, or the kernel counts no memory
			s.note(err, "watch memory", c.id)
		}
		return nothing
	}
	return stop
}

// watchExec waits for the end of an executed process.
func (s *Service) watchExec(c *container, p *process) {
	<-p.engine.Exited()
	exit := p.engine.Exit()
	p.end(exit, func() { s.publishExit(c, p.id, p, exit) })
}

func (s *Service) publishExit(c *container, id string, p *process, exit Exit) {
	s.publish(exitEvent(c.id, id, uint32(p.engine.Pid()), exit.Code, exit.At))
}

func (s *Service) publish(e Event) {
	if s.options.Publisher != nil {
		s.options.Publisher.Publish(e)
	}
}

// remove deletes a container whose init has ended, ending one that was never started.
func (s *Service) remove(ctx context.Context, c *container) (Exit, error) {
	neverRan := c.stillborn()
	if st, _ := c.init.snapshot(); st == created {
		neverRan = true
		// It may have ended by itself by now.
		if err := c.init.signal(ctx, sigKill, false); err != nil && !errdefs.IsNotFound(err) {
			return Exit{}, err
		}
		if _, err := c.init.wait(ctx); err != nil {
			return Exit{}, err
		}
	}
	err := c.init.become(deleted, func() error { return c.release(ctx) })
	if err != nil {
		return Exit{}, err
	}
	if neverRan {
		s.note(bundle.ForgetExit(c.path), "forget exit", c.id)
	}
	s.dropHandoff(c.id)
	s.mu.Lock()
	delete(s.containers, c.id)
	s.mu.Unlock()
	_, exit := c.init.snapshot()
	s.publish(deleteEvent(c.id, uint32(c.init.engine.Pid()), exit.Code, exit.At))
	return exit, nil
}

// shutdown ends the shim if it has no containers.
func (s *Service) shutdown() {
	s.mu.Lock()
	used := len(s.containers) > 0
	s.mu.Unlock()
	if !used {
		s.ending.Do(s.options.Done)
	}
}

// takeBack ends a container that was made but not answered, and removes it.
func (s *Service) takeBack(ctx context.Context, c *container) {
	s.note(c.destroy(), "end a container that was not answered", c.id)
	s.note(c.release(context.WithoutCancel(ctx)), "remove a container that was not answered", c.id)
	s.note(c.handoff.Forget(c.init.engine.Pid()), "forget process", c.id)
	s.dropHandoff(c.id)
}

// note logs an error that changes nothing for the caller.
func (s *Service) note(err error, doing, id string) {
	if err != nil && !errors.Is(err, context.Canceled) {
		s.options.Logger.Error(doing, "container", id, "error", err)
	}
}
