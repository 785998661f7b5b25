package shim

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// Keys of what is kept of a container, after its id. What a successor must know beside the files is in the bundle.
const (
	keptBundle  = "/bundle"       // note: the bundle's path; there from before anything is made until everything is gone
	keptStdin   = "/init/stdin"   // our end of init's input, by itself: the input ends when nobody has it
	keptStreams = "/init/streams" // the other ends; note: their names
	keptExec    = "/exec/"        // note: the pid of a process that was executed
	keptBox     = "/box/"         // the engine's
)

// survivor is a keeper whose own end changes nothing: from then on the containers end with the shim, as without one.
type survivor struct {
	Keeper
	log *slog.Logger
}

func (k survivor) alone(err error) error {
	if errdefs.IsUnavailable(err) {
		k.log.Error("the keeper is gone, containers will end with the shim", "error", err)
		return nil
	}
	return err
}

func (k survivor) Keep(key string, note []byte, files ...*os.File) error {
	return k.alone(k.Keeper.Keep(key, note, files...))
}
func (k survivor) Drop(key string) error { return k.alone(k.Keeper.Drop(key)) }
func (k survivor) Watch(pid int) error   { return k.alone(k.Keeper.Watch(pid)) }
func (k survivor) Forget(pid int) error  { return k.alone(k.Keeper.Forget(pid)) }

// keepBundle has it known that there may be something of a container.
func (s *Service) keepBundle(r createRequest, u *undo) error {
	if s.options.Keeper == nil {
		return nil
	}
	u.add(func() { s.letGo(r.id) })
	return s.options.Keeper.Keep(r.id+keptBundle, []byte(r.bundle))
}

// letGo closes what is kept of a container of which there is nothing any more.
func (s *Service) letGo(id string) {
	if s.options.Keeper != nil {
		s.note(s.options.Keeper.Drop(id+"/"), "drop what is kept", id)
	}
}

// box is where an engine keeps files of a container.
func (s *Service) box(id string) *Box {
	if s.options.Keeper == nil {
		return nil
	}
	return &Box{keeper: s.options.Keeper, prefix: id + keptBox}
}

// remember adds to a record what only a successor needs.
func (s *Service) remember(t *bundle.Task, r createRequest) (err error) {
	if s.options.Keeper != nil {
		t.Request, err = proto.Marshal(r.wire)
	}
	return err
}

// keepStreams keeps our ends of init's streams: all before init can end them, and the rest again when its terminal is known.
func (c *container) keepStreams(first bool) error {
	if c.keeper == nil {
		return nil
	}
	ends := c.init.streams.Ends()
	stdin := ends[stdio.EndStdin]
	delete(ends, stdio.EndStdin)
	if first && stdin != nil {
		if err := c.keeper.Keep(c.id+keptStdin, nil, stdin); err != nil {
			return err
		}
	}
	names := slices.Sorted(maps.Keys(ends))
	files := make([]*os.File, len(names))
	for i, name := range names {
		files[i] = ends[name]
	}
	return c.keeper.Keep(c.id+keptStreams, []byte(strings.Join(names, " ")), files...)
}

// own makes a container one that a successor will have: its creation is about to be answered.
func (c *container) own() error {
	if c.keeper == nil {
		return nil
	}
	pid := c.init.engine.Pid()
	if pid != 0 {
		if err := c.keeper.Watch(pid); err != nil {
			return err
		}
	}
	return c.progress(func(t *bundle.Task) { t.Stage, t.PID = bundle.Created, pid })
}

// progress records how far a container has come.
func (c *container) progress(change func(*bundle.Task)) error {
	if c.keeper == nil {
		return nil
	}
	return bundle.UpdateTask(c.path, change)
}

// starting records that the start of init begins; with false, that it did not come to it.
func (c *container) starting(p *process, begins bool) error {
	if p != c.init {
		return nil
	}
	return c.progress(func(t *bundle.Task) {
		t.Stage = bundle.Created
		if begins {
			t.Stage = bundle.Starting
		}
	})
}

// started records that init runs, for whoever comes after this shim.
func (c *container) started(began time.Time) error {
	if c.keeper == nil {
		return nil
	}
	pid := c.init.engine.Pid()
	var errs []error
	if c.unborn { // else it is watched since it is there, and may be over by now
		errs = append(errs, c.keeper.Watch(pid))
	}
	if c.init.names.Terminal {
		errs = append(errs, c.keepStreams(false))
	}
	errs = append(errs, c.progress(func(t *bundle.Task) { t.Stage, t.PID, t.Began = bundle.Started, pid, began }))
	return errors.Join(errs...)
}

// told records the signals that init was sent: a caller does not repeat them.
func (c *container) told() error {
	if c.keeper == nil {
		return nil
	}
	c.init.mu.Lock()
	defer c.init.mu.Unlock()
	return c.progress(func(t *bundle.Task) { t.Told = c.init.told })
}

// executed remembers a process that was executed: it is nobody's when the shim is dead.
func (c *container) executed(p *process) error {
	if c.keeper == nil {
		return nil
	}
	return c.keeper.Keep(c.id+keptExec+p.id, []byte(strconv.Itoa(p.engine.Pid())))
}

// unexecuted forgets it.
func (c *container) unexecuted(p *process) error {
	if c.keeper == nil {
		return nil
	}
	return c.keeper.Drop(c.id + keptExec + p.id)
}

// pause freezes the container. That it is to be paused is on record before: what a runtime froze for a moment only, and died at, is
// let go on by a successor.
func (c *container) pause(ctx context.Context) error {
	if err := c.progress(func(t *bundle.Task) { t.Paused = true }); err != nil {
		return err
	}
	err := c.engine.Pause(ctx)
	if err == nil {
		return nil
	}
	return errors.Join(err, c.progress(func(t *bundle.Task) { t.Paused = false }))
}

func (c *container) resume(ctx context.Context) error {
	if err := c.engine.Resume(ctx); err != nil {
		return err
	}
	return c.progress(func(t *bundle.Task) { t.Paused = false })
}
