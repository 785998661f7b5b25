package agent

import (
	"strings"

	"github.com/sunaba-project/sunaba/pods/agent/lastwords"
	"github.com/sunaba-project/sunaba/pods/agent/observe"
	"github.com/sunaba-project/sunaba/pods/agent/worker"
	"github.com/sunaba-project/sunaba/pods/cycle"
)

const (
	// maxTermination bounds the termination message of one container, allTerminations those of a
	// pod together, in bytes (DL3).
	maxTermination  = 4096
	allTerminations = 12 << 10
)

// read reads the termination messages of the containers of a pod that have ended (DL3-DL5).
func (l *stepper) read(p *pod) {
	pod := p.rec.Pod
	count := len(pod.Spec.InitContainers) + len(pod.Spec.Containers) + len(pod.Spec.EphemeralContainers)
	limit := min(maxTermination, allTerminations/max(count, 1))
	for _, seen := range p.seen.Containers {
		if seen.State != cycle.StateExited || seen.Read {
			continue
		}
		seen.Read = true
		c, _ := worker.Container(pod, seen.Name)
		if c == nil {
			continue
		}
		message, err := lastwords.Read(l.o.Volumes, pod, c, lastwords.End{Attempt: seen.Attempt, ExitCode: seen.ExitCode, Log: l.ownLog(seen)})
		if err != nil {
			l.o.Logger.Warn("failed to read termination message or log of ended container", "pod", p.uid(), "container", c.Name, "error", err)
		}
		seen.Termination = strings.ToValidUTF8(message[:min(len(message), limit)], "\uFFFD")
	}
}

// ownLog is the log of a container, "" if it is not below the folder of logs.
func (l *stepper) ownLog(seen *observe.Container) string {
	if !worker.Below(l.o.Logs, seen.LogPath) {
		return ""
	}
	return seen.LogPath
}
