// Package task is the shim's service: it owns the containers of a pod, asks engines to turn bundles
// into processes, and answers containerd's Task API for them over ttrpc.
package task

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/events"
	"github.com/sunaba-project/sunaba/shim/shared/handoff"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// execTime is how long the end of a container waits for the ends of the processes executed in it to
// be announced.
const execTime = 2 * time.Second

// Options is what a service works with.
type Options struct {
	Namespace   string
	Containerd  bool            // it is the caller: annotations may be those of a pod's author
	Engines     []shim.Engine   // in the order they are asked
	RuntimeRoot string          // the OCI runtime's --root for callers that give none
	Publisher   Publisher       // nil = no events
	Supervisor  shim.Supervisor // nil = the containers end with the shim
	// Remove, with a Supervisor, ends a container and removes what its bundle tells of it.
	Remove  func(dir, id string) (shim.Exit, error)
	Run     func(*exec.Cmd) (stdio.Program, error) // programs for output; nil = none
	Settled func()                                 // after work: memory can be given back; or nil
	Asked   func()                                 // after what containerd asks each second; or nil
	Done    func()                                 // once, when no container is left; Serve sets it
	Ending  func()                                 // before callers see the end of Serve; or nil
	Logger  *slog.Logger
}

// Publisher announces events to containerd.
type Publisher interface {
	// Publish hands on one event without waiting; events of one publisher keep their order.
	Publish(events.Event)
}

// Service owns the containers of one pod, or of several, and answers the Task API for them.
type Service struct {
	options Options
	engines engines
	table   table
	ending  sync.Once
	kills   cgroup.Ledger    // of all containers
	handoff *handoff.Handoff // nil without a supervisor
	history api.History      // with a supervisor; set before anybody can call
}

// New makes a service without containers.
func New(o Options) *Service {
	if o.Settled == nil {
		o.Settled = func() {}
	}
	if o.Asked == nil {
		o.Asked = func() {}
	}
	return &Service{
		options: o, engines: o.Engines, handoff: handoff.New(o.Supervisor, o.Logger),
		table: table{containers: make(map[string]*container), creations: make(map[string]*creation)},
	}
}

func (s *Service) process(id, execID string) (*container, *process, error) {
	c, err := s.table.find(id)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.process(execID)
	return c, p, err
}

// watchInit waits for init's end, writes down how it ended, and only then announces it.
func (s *Service) watchInit(c *container) {
	stop := s.watchOOM(c)
	<-c.init.engine.Exited()
	exit := s.endOf(c)
	stop()
	if c.message != "" && exit.Message != "" {
		s.note(leaveMessage(c.message, exit.Message), "say how it ended", c.id)
	}
	s.note(bundle.WriteExit(c.path, exit), "record exit", c.id)
	s.note(c.handoff.Forget(c.init.engine.Pid()), "forget process", c.id)
	c.execs.wait(execTime) // they ended before, and are to be heard of before
	c.init.end(exit, func() {
		if exit.OOMKilled && !c.oomTold {
			s.publish(events.OOM(c.id))
		}
		s.publish(events.Exit(c.id, c.id, uint32(c.init.engine.Pid()), exit.Code, exit.At))
	})
}

// endOf returns how init ended, after making sure that nothing of the container runs on.
func (s *Service) endOf(c *container) shim.Exit {
	exit := c.init.engine.Exit()
	if c.kills != nil && c.kills.Close() && exit.Code != 0 {
		exit.OOMKilled = true
	}
	group, err := cgroup.Open(c.engine.Cgroup())
	if err == nil && !c.ownPids {
		ctx, cancel := context.WithTimeout(context.Background(), killTime)
		s.note(group.Kill(ctx), "kill what init left", c.id)
		cancel()
	}
	c.init.drain(drainTime)
	return exit
}

// watchOOM announces, while the container runs, that something in it was killed for lack of memory.
// It does nothing without a publisher: how the container ended is written down anyway.
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
			s.publish(events.OOM(c.id))
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
	p.end(exit, func() { s.publish(events.Exit(c.id, p.id, uint32(p.engine.Pid()), exit.Code, exit.At)) })
}

func (s *Service) publish(e events.Event) {
	if s.options.Publisher != nil {
		s.options.Publisher.Publish(e)
	}
}

// remove deletes a container whose init has ended, ending one that was never started.
func (s *Service) remove(ctx context.Context, c *container) (shim.Exit, error) {
	neverRan := c.endUnstarted()
	if st, _ := c.init.snapshot(); st == created {
		neverRan = true
		// It may have ended by itself by now.
		if err := c.init.signal(ctx, syscall.SIGKILL, false); err != nil && !errdefs.IsNotFound(err) {
			return shim.Exit{}, err
		}
		if _, err := c.init.wait(ctx); err != nil {
			return shim.Exit{}, err
		}
	}
	err := c.init.become(deleted, func() error { return c.release(ctx) })
	if err != nil {
		return shim.Exit{}, err
	}
	if neverRan {
		s.note(bundle.ForgetExit(c.path), "forget exit", c.id)
	}
	s.dropHandoff(c.id)
	c.init.streams.Heard(drainTime, lateTime) // the shim may end once it has no containers
	s.table.remove(c.id)
	_, exit := c.init.snapshot()
	s.publish(events.Delete(c.id, uint32(c.init.engine.Pid()), exit.Code, exit.At))
	return exit, nil
}

// shutdown ends the shim if it has no containers.
func (s *Service) shutdown() {
	if !s.table.used() {
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
