package pressure

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reason is that of pods that were evicted, and of the event.
const Reason = "Evicted"

// Grace is the grace period of a pod that is evicted (EX7).
const Grace = time.Second

// The pause from an eviction of a pod until it is made anew (EX8). It starts anew for a pod that
// ran for so long since its last one.
const (
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
	forgetAfter  = 2 * longestPause
)

// Eviction is one of a pod. It is on record before the pod is stopped, and passes to the pod that
// is made in its place.
type Eviction struct {
	At time.Time `json:"at"`
	// Pause is the back-off that it started, Until when the pod is made anew at the earliest.
	Pause time.Duration `json:"pause"`
	Until time.Time     `json:"until"`
	// Condition is that of the node for which the pod was evicted; "" if it broke a limit of its own.
	Condition corev1.NodeConditionType `json:"condition,omitempty"`
}

// Evict is the eviction of a pod now. last is the last one of the pod in whose place it is, nil
// without; transition is how long the pressure must have been gone.
func Evict(last *Eviction, condition corev1.NodeConditionType, transition time.Duration, now time.Time) *Eviction {
	e := &Eviction{At: now, Pause: firstPause, Condition: condition}
	if last != nil && now.Sub(last.Until) < forgetAfter {
		e.Pause = min(max(2*last.Pause, firstPause), longestPause)
	}
	wait := e.Pause
	if condition != "" {
		wait = max(wait, transition)
	}
	e.Until = now.Add(wait)
	return e
}

// Shift takes a time in the future as now: the clock was set back.
func (e *Eviction) Shift(now time.Time) {
	if e.At.After(now) {
		e.At, e.Until = now, now.Add(e.Until.Sub(e.At))
	}
}

// Over says whether the pod may be made anew: its pause is over and the pressure has ended.
func (e *Eviction) Over(c *Conditions, now time.Time) bool {
	return !now.Before(e.Until) && (e.Condition == "" || !c.Holds(e.Condition))
}
