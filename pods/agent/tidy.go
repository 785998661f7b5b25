package agent

import (
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sunaba-project/sunaba/pods/agent/tidy"
	"github.com/sunaba-project/sunaba/pods/agent/worker"
	"github.com/sunaba-project/sunaba/pods/cycle"
)

func newKeeper(l *loop) *tidy.Keeper {
	return tidy.New(tidy.Options{
		CRI: l.o.CRI, Volumes: l.o.Volumes, Events: l.events, Logs: l.o.Logs, Mark: l.mark, Limits: l.o.LogLimits,
		Has: l.has, Paths: l.logPaths, Live: l.live,
		Go: l.spawn, Post: l.post, Now: l.o.now, Pace: l.pace, Logger: l.o.Logger,
	})
}

// live says whether anything of a pod may run.
func (l *loop) live() bool {
	for _, p := range l.pods {
		if p.seen.Live() {
			return true
		}
	}
	return false
}

// logPaths are the logs of the running containers by id.
func (l *loop) logPaths() map[string]string {
	paths := map[string]string{}
	for _, p := range l.pods {
		for id, c := range p.seen.Containers {
			if c.State == cycle.StateRunning && worker.Below(l.o.Logs, c.LogPath) {
				paths[id] = c.LogPath
			}
		}
	}
	return paths
}

// has says whether a pod is there now. It is for workers.
func (l *loop) has(uid types.UID) bool {
	absent := errors.New("absent")
	err := l.ask(l.ctx, func() error {
		if l.pods[string(uid)] == nil && l.orphans.ending[string(uid)] == 0 {
			return absent
		}
		return nil
	})
	return !errors.Is(err, absent)
}
