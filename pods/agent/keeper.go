package agent

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/pods/agent/logs"
	"github.com/sunaba-project/sunaba/pods/agent/worker"
	"github.com/sunaba-project/sunaba/pods/cycle"
)

const (
	// lookEvery is how often the sizes of logs are looked at while containers run (LG1).
	lookEvery = 10 * time.Second
	// sweepEvery is the time between two sweeps (GC4).
	sweepEvery = time.Minute
)

// keeper keeps the node tidy: it rotates logs, removes what is left of pods that are gone and
// unused images, and writes the events. It is owned by the loop, and its work is done by workers.
type keeper struct {
	l *loop
	// next is when wake is to be called; zero for never.
	next time.Time
	// look is when logs are looked at, sweep when it is swept; zero for not at all. looking and
	// sweeping say that a worker does it.
	look, sweep       time.Time
	looking, sweeping bool
	swept             time.Time
	collecting        bool // images
}

// start sweeps once, at the start of the agent, and has images collected from then on.
func (k *keeper) start() {
	if k.swept.IsZero() {
		k.sweepSoon()
	}
	if !k.collecting && k.l.o.RunMark == "" { // the images are not a run's
		k.collecting = true
		k.l.work.Go(func() { k.l.garbage.Run(k.l.ctx) })
	}
}

// seen notes that a pod has running containers, whose logs may grow.
func (k *keeper) seen(p *pod) {
	if k.look.IsZero() && !k.looking && p.seen.Live() {
		k.look = k.l.pace.Next(k.l.o.now(), lookEvery)
		k.arm()
	}
}

// sweepSoon asks for a sweep as soon as it may be.
func (k *keeper) sweepSoon() {
	if k.sweep.IsZero() && !k.sweeping {
		k.sweep = k.l.o.now()
		if next := k.swept.Add(sweepEvery); !k.swept.IsZero() && next.After(k.sweep) {
			k.sweep = next
		}
		k.arm()
	}
}

func (k *keeper) arm() { k.next = earliest(k.look, k.sweep) }

// wake does what is due.
func (k *keeper) wake(now time.Time) {
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
func (k *keeper) rotate(now time.Time) {
	paths := map[string]string{}
	for _, p := range k.l.pods {
		for id, c := range p.seen.Containers {
			if c.State == cycle.StateRunning && worker.Below(k.l.o.Logs, c.LogPath) {
				paths[id] = c.LogPath
			}
		}
	}
	l := k.l
	l.work.Go(func() {
		for id, path := range paths {
			rotated, err := logs.Rotate(l.ctx, path, l.o.LogLimits, now, func(ctx context.Context) error {
				_, err := l.o.CRI.ReopenContainerLog(ctx, &runtime.ReopenContainerLogRequest{ContainerId: id})
				return err
			})
			switch {
			case err != nil && l.ctx.Err() == nil:
				l.o.Logger.Error("failed to rotate log", "container", id, "error", err)
			case rotated:
				l.o.Logger.Debug("log rotated", "container", id, "path", path)
			}
		}
		if err := l.events.Flush(l.o.now()); err != nil {
			l.o.Logger.Warn("failed to write events", "error", err)
		}
		l.post(k.looked)
	})
}

// looked arms the next look, if containers still run.
func (k *keeper) looked() {
	k.looking = false
	for _, p := range k.l.pods {
		k.seen(p)
	}
}

// clean removes the volumes and log folders of pods that are gone.
func (k *keeper) clean() {
	known := map[string]bool{}
	for uid := range k.l.pods {
		known[uid] = true
	}
	for uid := range k.l.orphans.ending {
		known[uid] = true
	}
	l := k.l
	l.work.Go(func() {
		err := errors.Join(l.o.Volumes.Sweep(known), logs.Sweep(l.o.Logs, l.mark, k.known))
		if err != nil && l.ctx.Err() == nil {
			l.o.Logger.Error("failed to remove what is left of deleted pods", "error", err)
		}
		l.post(func() {
			k.sweeping = false
			k.sweepSoon()
		})
	})
}

// known says whether a pod is there now: it may have come after the sweep began. It is for workers.
func (k *keeper) known(uid types.UID) bool {
	found := true
	err := k.l.ask(k.l.ctx, func() error {
		found = k.l.pods[string(uid)] != nil || k.l.orphans.ending[string(uid)] > 0
		return nil
	})
	return found || err != nil
}
