// Package lull tells of bodies that make a pause.
package lull

import (
	"sync"
	"time"
)

// Time is how long a body may pause before what was written of it is sent.
const Time = time.Millisecond

// Timer calls functions one to two times Time after they were added: for exchanges whose guests
// continue after they have answered. Few do, and a timer for each would have Go's runtime wake a
// thread for it: there is one, which runs while functions are added. Its zero value has none.
type Timer struct {
	mu    sync.Mutex
	timer *time.Timer // nil before the first one; it runs while there are functions
	fresh []func()    // those that were added since the timer's last turn
	old   []func()    // before that, and since the turn before
}

// Add adds a function, which must not block.
func (t *Timer) Add(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.fresh) > 0 || len(t.old) > 0:
	case t.timer == nil:
		t.timer = time.AfterFunc(Time, t.turn)
	default:
		t.timer.Reset(Time)
	}
	t.fresh = append(t.fresh, f)
}

func (t *Timer) turn() {
	t.mu.Lock()
	due := t.old
	t.old, t.fresh = t.fresh, nil
	if len(t.old) > 0 {
		t.timer.Reset(Time)
	}
	t.mu.Unlock()
	for _, f := range due {
		f()
	}
}
