package views

import (
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// startBuckets are the bounds of the histogram of starts, in seconds: a kubelet's from 0.5 s on, and
// smaller ones, as guests start in milliseconds.
var startBuckets = [...]float64{
	0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
}

// newPod is how old a pod is at most when it is shown for the first time, as creation times are
// whole seconds. The start of an older one began before this agent did.
const newPod = 2 * time.Second

// starts counts how long pods took to start.
type starts struct {
	buckets [len(startBuckets)]uint64
	count   uint64
	sum     time.Duration
}

// take counts a start.
func (s *starts) take(d time.Duration) {
	s.count++
	s.sum += d
	for i, bound := range startBuckets {
		if d.Seconds() <= bound {
			s.buckets[i]++
		}
	}
}

// started says whether containers of a pod run or have run.
func started(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Terminated != nil && !c.State.Terminated.StartedAt.IsZero() {
				return true
			}
		}
		return false
	}
	return p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodSucceeded
}

// WriteStarts writes how long pods took to start, from when they were first shown until a container
// ran, in the text format of Prometheus and with a kubelet's name.
func (v *Views) WriteStarts(w io.Writer) error {
	v.mu.Lock()
	s := v.starts
	v.mu.Unlock()
	const name = "kubelet_pod_start_duration_seconds"
	var b strings.Builder
	fmt.Fprintf(&b, "# HELP %s Duration in seconds from the agent seeing a pod for the first time to the pod starting to run.\n# TYPE %s histogram\n", name, name)
	for i, bound := range startBuckets {
		fmt.Fprintf(&b, "%s_bucket{le=\"%g\"} %d\n", name, bound, s.buckets[i])
	}
	fmt.Fprintf(&b, "%s_bucket{le=\"+Inf\"} %d\n%s_sum %g\n%s_count %d\n", name, s.count, name, s.sum.Seconds(), name, s.count)
	_, err := io.WriteString(w, b.String())
	return err
}
