package server

import (
	"context"
	"sync"
	"time"

	"github.com/sunaba-project/sunaba/criserver/stats"
	"github.com/sunaba-project/sunaba/shim/client"
)

// engines remembers what a container's shim tells of its guest engine. It does not change while the
// container runs, and to be asked with every sample would be most of what an idle shim does.
type engines struct {
	mu      sync.Mutex
	known   map[string]stats.Part // by container; without a name: it has no engine
	sweepAt int
}

// settledAfter is when a container that shows no engine has none: guests tell of theirs within
// their start.
const settledAfter = time.Minute

// firstSweep is how many containers are remembered before removed ones are looked for.
const firstSweep = 64

func newEngines() *engines { return &engines{known: make(map[string]stats.Part), sweepAt: firstSweep} }

// of returns a running container's engine, false if it has none or has just ended. here says which
// containers there are.
func (e *engines) of(ctx context.Context, id string, ask func(context.Context, string) (client.Details, error), here func(string) bool) (stats.Part, bool) {
	e.mu.Lock()
	part, ok := e.known[id]
	e.mu.Unlock()
	if ok {
		return part, part.Name != ""
	}
	d, err := ask(ctx, id)
	if err != nil || d.Exit != nil {
		return stats.Part{}, false
	}
	if d.LinearSize != 0 {
		part = stats.Part{
			Name: "engine", Container: id, PID: d.PID, LinearBase: d.LinearBase, LinearSize: d.LinearSize, CPU: d.EngineCPU,
		}
	}
	if part.Name != "" || !d.StartedAt.IsZero() && time.Since(d.StartedAt) > settledAfter {
		e.keep(id, part, here)
	}
	return part, part.Name != ""
}

func (e *engines) keep(id string, part stats.Part, here func(string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.known) >= e.sweepAt {
		for id := range e.known {
			if !here(id) {
				delete(e.known, id)
			}
		}
		e.sweepAt = max(firstSweep, 2*len(e.known))
	}
	e.known[id] = part
}
