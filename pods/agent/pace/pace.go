// Package pace gives what is done again and again common times. Each piece of work wakes the
// process, which costs more than most of the work: what is done together wakes it once. It is pure.
package pace

import "time"

// Pace has its times since a common start.
type Pace struct{ start time.Time }

// Since returns the pace that starts now.
func Since(now time.Time) Pace { return Pace{now} }

// Next returns the first time after now at which work of this period is done: a whole number of
// periods after the start, and at most a period away. Periods that are multiples of one another have
// times in common.
func (p Pace) Next(now time.Time, every time.Duration) time.Time {
	since := now.Sub(p.start)
	n := since / every
	if since < 0 && since%every != 0 {
		n-- // a clock without a monotonic part was set back
	}
	return p.start.Add((n + 1) * every)
}

// Earliest is the first of times that is not zero.
func Earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
