// Package tidy keeps the node tidy: it rotates the logs of running containers, removes what is left
// of deleted pods, and writes the events.
package tidy

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/agent/events"
	"github.com/sunaba-project/sunaba/pods/agent/logs"
	"github.com/sunaba-project/sunaba/pods/agent/pace"
)

const (
	// lookEvery is how often the sizes of logs are looked at while containers run (LG1).
	lookEvery = 10 * time.Second
	// sweepEvery is the time between two sweeps (GC4).
	sweepEvery = time.Minute
)

// Options configure New.
type Options struct {
	CRI interface {
		ReopenContainerLog(context.Context, *runtime.ReopenContainerLogRequest) (*runtime.ReopenContainerLogResponse, error)
	}
	Volumes interface {
		Sweep(known func(types.UID) bool) error
	}
	Events *events.Store
	// Logs is the folder of the logs of all pods, Mark says which of them are the agent's.
	Logs, Mark string
	Limits     logs.Limits
	// Paths are the logs of the running containers by id, Live says whether anything may run. They
	// are called on the goroutine of the Keeper's owner.
	Paths func() map[string]string
	Live  func() bool
	// Has says whether a pod is there now. It is called by workers, once they have found its folder:
	// a pod is there before its folder is.
	Has func(types.UID) bool
	// Go has a worker call f, Post the goroutine of the owner.
	Go     func(f func(context.Context))
	Post   func(f func())
	Now    func() time.Time
	Pace   pace.Pace
	Logger *slog.Logger
}

// Keeper keeps the node tidy. It is owned by one goroutine, and its work is done by workers.
type Keeper struct {
	o Options
	// next is when Wake is to be called; zero for never.
	next time.Time
	// look is when logs are looked at, sweep when it is swept; zero for not at all. looking and
	// sweeping say that a worker does it.
	look, sweep       time.Time
	looking, sweeping bool
	swept             time.Time
}

// New returns a keeper that has nothing to do yet.
func New(o Options) *Keeper { return &Keeper{o: o} }

// Next is when Wake is to be called; zero for never.
func (k *Keeper) Next() time.Time { return k.next }

// Start sweeps once, at the start of the agent.
func (k *Keeper) Start() {
	if k.swept.IsZero() {
		k.SweepSoon()
	}
}

// Runs notes that containers run, whose logs may grow.
func (k *Keeper) Runs() {
	if k.look.IsZero() && !k.looking {
		k.look = k.o.Pace.Next(k.o.Now(), lookEvery)
		k.arm()
	}
}

// SweepSoon asks for a sweep as soon as it may be.
func (k *Keeper) SweepSoon() {
	if k.sweep.IsZero() && !k.sweeping {
		k.sweep = k.o.Now()
		if next := k.swept.Add(sweepEvery); !k.swept.IsZero() && next.After(k.sweep) {
			k.sweep = next
		}
		k.arm()
	}
}

func (k *Keeper) arm() { k.next = pace.Earliest(k.look, k.sweep) }

// Wake does what is due.
func (k *Keeper) Wake(now time.Time) {
	if !k.look.IsZero() && !k.look.After(now) {
		k.look, k.looking = time.Time{}, true
		k.rotate(now)
	}
	if !k.sweep.IsZero() && !k.sweep.After(now) {
		k.sweep, k.sweeping, k.swept = time.Time{}, true, now
		k.clean()
	}
	k.arm()
}

// rotate rotates the logs of running containers that are too large, and writes the events.
func (k *Keeper) rotate(now time.Time) {
	paths := k.o.Paths()
	k.o.Go(func(ctx context.Context) {
		for id, path := range paths {
			rotated, err := logs.Rotate(ctx, path, k.o.Limits, now, func(ctx context.Context) error {
				_, err := k.o.CRI.ReopenContainerLog(ctx, &runtime.ReopenContainerLogRequest{ContainerId: id})
				return err
			})
			switch {
			case err != nil && ctx.Err() == nil:
				k.o.Logger.Error("failed to rotate log", "container", id, "error", err)
			case rotated:
				k.o.Logger.Debug("log rotated", "container", id, "path", path)
			}
		}
		if err := k.o.Events.Flush(k.o.Now()); err != nil {
			k.o.Logger.Warn("failed to write events", "error", err)
		}
		k.o.Post(k.looked)
	})
}

// looked arms the next look, if containers still run.
func (k *Keeper) looked() {
	k.looking = false
	if k.o.Live() {
		k.Runs()
	}
}

// clean removes the volumes and log folders of deleted pods.
func (k *Keeper) clean() {
	k.o.Go(func(ctx context.Context) {
		err := errors.Join(k.o.Volumes.Sweep(k.o.Has), logs.Sweep(k.o.Logs, k.o.Mark, k.o.Has))
		if err != nil && ctx.Err() == nil {
			k.o.Logger.Error("failed to remove what is left of deleted pods", "error", err)
		}
		k.o.Post(func() {
			k.sweeping = false
			k.SweepSoon()
		})
	})
}
