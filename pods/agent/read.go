package agent

import (
	"errors"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/agent/observe"
	"github.com/sunaba-project/sunaba/pods/agent/worker"
	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/volumes"
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
		message := l.message(p, c, seen)
		seen.Termination = strings.ToValidUTF8(message[:min(len(message), limit)], "\uFFFD")
	}
}

// message is what a container said at last.
func (l *stepper) message(p *pod, c *corev1.Container, seen *observe.Container) string {
	if c.TerminationMessagePath != "" {
		path, err := l.o.Volumes.TerminationLog(p.uid(), c.Name, seen.Attempt)
		var text string
		if err == nil {
			text, err = volumes.ReadTermination(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.o.Logger.Warn("failed to read termination message", "pod", p.uid(), "container", c.Name, "error", err)
		}
		if text != "" {
			return text
		}
	}
	if c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError || seen.ExitCode == 0 || !worker.Below(l.o.Logs, seen.LogPath) {
		return ""
	}
	text, err := volumes.ReadLogEnd(seen.LogPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.o.Logger.Warn("failed to read log of ended container", "pod", p.uid(), "container", c.Name, "error", err)
	}
	return text
}
