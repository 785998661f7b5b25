package task

import (
	"context"
	"errors"
	"time"

	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// dropHandoff drops what is kept of a container of which nothing is left.
func (s *Service) dropHandoff(id string) {
	s.note(s.handoff.Close(id), "drop what is kept", id)
}

// keepStreams keeps our ends of init's streams: all before init can end them, and the rest again
// when its terminal is known.
func (c *container) keepStreams(first bool) error {
	if c.handoff == nil {
		return nil
	}
	ends := c.init.streams.Ends()
	stdin := ends[stdio.EndStdin]
	delete(ends, stdio.EndStdin)
	if first && stdin != nil {
		if err := c.handoff.KeepStdin(c.id, stdin); err != nil {
			return err
		}
	}
	return c.handoff.KeepStreams(c.id, ends)
}

// own makes a container one that a successor adopts: its creation is about to be answered.
func (c *container) own() error {
	pid := c.init.engine.Pid()
	if pid != 0 {
		if err := c.handoff.Watch(pid); err != nil {
			return err
		}
	}
	return c.progress(func(t *bundle.Task) { t.Stage, t.PID = bundle.Created, pid })
}

// progress records how far a container has come.
func (c *container) progress(change func(*bundle.Task)) error {
	if c.handoff == nil {
		return nil
	}
	return bundle.UpdateTask(c.path, change)
}

// starting records that init is being started; with false, that its start has failed.
func (c *container) starting(p *process, starts bool) error {
	if p != c.init {
		return nil
	}
	return c.progress(func(t *bundle.Task) {
		t.Stage = bundle.Created
		if starts {
			t.Stage = bundle.Starting
		}
	})
}

// started records that init runs, for a successor.
func (c *container) started(startedAt time.Time) error {
	pid := c.init.engine.Pid()
	var errs []error
	if c.startMakesInit { // else it is watched since it is there, and may be over by now
		errs = append(errs, c.handoff.Watch(pid))
	}
	if c.init.names.Terminal {
		errs = append(errs, c.keepStreams(false))
	}
	errs = append(errs, c.progress(func(t *bundle.Task) { t.Stage, t.PID, t.StartedAt = bundle.Started, pid, startedAt }))
	return errors.Join(errs...)
}

// told records the signals that init was sent: a caller does not repeat them.
func (c *container) told() error {
	c.init.mu.Lock()
	defer c.init.mu.Unlock()
	return c.progress(func(t *bundle.Task) { t.Told = c.init.told })
}

// pause freezes the container. The intent is on record before: a successor thaws what a runtime
// froze only for a moment, and died at.
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
