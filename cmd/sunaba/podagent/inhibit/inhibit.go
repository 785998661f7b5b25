// Package inhibit ends pods when systemd-logind shuts the machine down: it holds the shutdown back
// until they are over (SD1, SD8).
package inhibit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/systemd/logind"
)

// Pods are what is ended: an *agent.Agent.
type Pods interface {
	// BeginShutdown starts to end the pods; wait waits until they are over, or out of time.
	BeginShutdown(context.Context) (wait func(context.Context) error, err error)
	CancelShutdown(context.Context) error
}

// Options configure New.
type Options struct {
	Pods Pods
	// Grace is how long a shutdown of the pods takes at most.
	Grace time.Duration
	// DropIns is the folder of logind's drop-in files in which one is written if logind lets
	// shutdowns be held back for less than Grace (SD2); "" writes none.
	DropIns string
	Logger  *slog.Logger

	pause, reloaded time.Duration
}

const (
	// reconnectPause is the pause before another connection, as a kubelet's. It doubles up to
	// longestPause while connections do not last for that.
	reconnectPause = time.Second
	longestPause   = time.Minute
	// reloadTime is how long logind has to read its configuration.
	reloadTime = 5 * time.Second
)

// Inhibitor ends pods when the machine shuts down.
type Inhibitor struct {
	o Options
	// down says that logind told of a shutdown last.
	down bool
}

// New returns one, for Run.
func New(o Options) *Inhibitor {
	if o.pause == 0 {
		o.pause, o.reloaded = reconnectPause, reloadTime
	}
	return &Inhibitor{o: o}
}

// Run holds shutdowns back and ends pods until the context ends, or at once where there is no
// logind.
func (i *Inhibitor) Run(ctx context.Context) {
	pause := i.o.pause
	for {
		began := time.Now()
		err := i.follow(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errdefs.IsNotFound(err):
			i.o.Logger.Info("there is no systemd-logind: for pods to be stopped in order when the machine shuts down, have it run \"sunaba shutdown\"",
				"reason", err)
			return
		}
		i.o.Logger.Warn("failed to follow shutdowns of the machine, trying again", "error", err)
		if time.Since(began) >= longestPause {
			pause = i.o.pause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, longestPause)
	}
}

// follow does it for one connection.
func (i *Inhibitor) follow(ctx context.Context) error {
	c, err := logind.Connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := i.lengthen(ctx, c); err != nil {
		i.o.Logger.Warn("failed to have shutdowns of the machine wait for long enough, pods may be killed before their grace period is over", "error", err)
	}
	// It is asked after the lock is taken: a shutdown that starts in between is seen here or told.
	held := &hold{}
	defer held.release()
	inhibited := held.take(ctx, c)
	down, err := c.ShuttingDown(ctx)
	if err != nil || inhibited != nil && !down {
		return errors.Join(inhibited, err)
	}
	if i.down && !down {
		if err := i.o.Pods.CancelShutdown(ctx); err != nil {
			return err
		}
	}
	if i.down = down; down {
		i.end(ctx, held)
	} else {
		i.o.Logger.Info("holding shutdowns of the machine back until pods are stopped", "grace", i.o.Grace)
	}
	for {
		down, err := c.Next(ctx)
		if err != nil {
			held.wait(ctx)
			return err
		}
		if i.down = down; down {
			i.end(ctx, held)
			continue
		}
		if err := i.o.Pods.CancelShutdown(ctx); err != nil {
			return err
		}
		held.wait(ctx)
		if err := held.take(ctx, c); err != nil {
			return err
		}
	}
}

// end ends the pods, once, and then lets the machine shut down.
func (i *Inhibitor) end(ctx context.Context, held *hold) {
	if held.ended != nil {
		return
	}
	ended := make(chan struct{})
	held.ended = ended
	lock := held.lock
	held.lock = nil
	// Before logind is heard again: it may take the shutdown back at once.
	wait, err := i.o.Pods.BeginShutdown(ctx)
	go func() {
		defer close(ended)
		if err == nil {
			err = wait(ctx)
		}
		if err != nil && !errdefs.IsAborted(err) && ctx.Err() == nil {
			i.o.Logger.Error("failed to stop pods before the machine shuts down", "error", err)
		}
		if lock != nil {
			lock.Close()
		}
	}()
}

// hold is a lock, and the end of the pods for which it is held.
type hold struct {
	lock  io.Closer     // nil without
	ended chan struct{} // closed when the pods are over; nil if they are not being ended
}

func (h *hold) take(ctx context.Context, c *logind.Conn) (err error) {
	if h.lock == nil {
		h.lock, err = c.Inhibit(ctx, "sunaba", "Pods need time to stop")
	}
	return err
}

func (h *hold) release() {
	if h.lock != nil {
		h.lock.Close()
	}
}

// wait waits until the pods are over.
func (h *hold) wait(ctx context.Context) {
	if h.ended == nil {
		return
	}
	select {
	case <-h.ended:
		h.ended = nil
	case <-ctx.Done():
	}
}

// lengthen raises the time for which logind lets shutdowns be held back, if it is too short (SD2).
func (i *Inhibitor) lengthen(ctx context.Context, c *logind.Conn) error {
	have, err := c.MaxDelay(ctx)
	if err != nil || have >= i.o.Grace {
		return err
	}
	short := fmt.Errorf("InhibitDelayMaxSec of logind is %s, shutdown_grace %s", have, i.o.Grace)
	if i.o.DropIns == "" {
		return short
	}
	if err := logind.WriteMaxDelay(i.o.DropIns, i.o.Grace); err != nil {
		return err
	}
	if err := c.Reload(ctx); err != nil {
		return err
	}
	for end := time.Now().Add(i.o.reloaded); have < i.o.Grace; {
		select {
		case <-time.After(i.o.reloaded / 50):
		case <-ctx.Done():
			return ctx.Err()
		}
		if have, err = c.MaxDelay(ctx); err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w, although %s in %q says otherwise", short, logind.DropIn, i.o.DropIns)
		}
	}
	i.o.Logger.Info("raised InhibitDelayMaxSec of logind", "file", i.o.DropIns+"/"+logind.DropIn, "to", have)
	return nil
}
