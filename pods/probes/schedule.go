package probes

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sunaba-project/sunaba/pods/cycle"
	"github.com/sunaba-project/sunaba/pods/queue"
)

// first is when a probe runs for the first time: after the initial delay, which counts from the
// start of the container. A container that ran before this process is probed after a random part of
// the period, given as a fraction, as long as the process is younger than the period.
func first(now, birth, started time.Time, spec *corev1.Probe, fraction float64) time.Time {
	started = now.Add(min(0, started.Sub(now))) // with monotonic time, and if the clock was set back
	due := started.Add(time.Duration(spec.InitialDelaySeconds) * time.Second)
	if due.Before(now) {
		due = now
	}
	if p := period(spec); started.Before(birth) && now.Sub(birth) < p {
		if later := now.Add(time.Duration(fraction * float64(p))); later.After(due) {
			return later
		}
	}
	return due
}

// following is when a probe runs again: a period after its last start, or at its end if it took
// longer.
func following(start, end time.Time, spec *corev1.Probe) time.Time {
	if next := start.Add(period(spec)); next.After(end) {
		return next
	}
	return end
}

func period(spec *corev1.Probe) time.Duration {
	return time.Duration(max(spec.PeriodSeconds, 1)) * time.Second
}

func timeout(spec *corev1.Probe) time.Duration {
	return time.Duration(max(spec.TimeoutSeconds, 1)) * time.Second
}

// tally counts equal results in a row.
type tally struct {
	success bool
	run     int32
}

// add counts a result. It returns the state of the probe and whether the threshold for it is
// reached; until then the state stays what it was.
func (t *tally) add(success bool, spec *corev1.Probe) (cycle.ProbeResult, bool) {
	if t.run == 0 || t.success != success {
		t.success, t.run = success, 0
	}
	if t.run < 1<<30 {
		t.run++
	}
	if success {
		return cycle.ProbeSuccess, t.run >= max(spec.SuccessThreshold, 1)
	}
	return cycle.ProbeFailure, t.run >= max(spec.FailureThreshold, 1)
}

// schedule holds the probes that wait for their time, the earliest first, and those whose time has
// come and that wait for room, in order.
type schedule struct {
	waiting queue.Queue[*probe]
	due     []*probe
}

// drop takes a probe out, if it is in.
func (s *schedule) drop(p *probe) {
	s.waiting.Set(p, time.Time{})
	s.due = slices.DeleteFunc(s.due, func(other *probe) bool { return other == p })
}

// collect moves the probes whose time has come to those that are due.
func (s *schedule) collect(now time.Time) {
	for p, ok := s.waiting.Take(now); ok; p, ok = s.waiting.Take(now) {
		s.due = append(s.due, p)
	}
}

// near is how close the times of two probes are that count as one instant.
const near = 20 * time.Millisecond

// apart moves the time of a probe by up to 5 % of its period, given as a fraction of that, if a
// probe of another pod runs in the same instant.
func (s *schedule) apart(p *probe, due time.Time, fraction float64) time.Time {
	for _, other := range s.waiting.All() {
		if other.pod != p.pod && other.Due().Sub(due).Abs() < near {
			return due.Add(time.Duration(fraction * float64(period(p.spec)) / 20))
		}
	}
	return due
}
