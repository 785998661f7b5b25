package wasi

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Event is something that happens within this process, so that no descriptor tells of it. The zero
// value has not happened. Its methods may be called from any goroutine.
type Event struct {
	mu      sync.Mutex
	set     bool
	waiting []*System // that are in Poll
}

// Set makes it happen, and wakes who polls for it.
func (e *Event) Set() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.set {
		return
	}
	e.set = true
	for _, s := range e.waiting {
		s.waiter.ring()
	}
}

// Clear takes it back.
func (e *Event) Clear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.set = false
}

// IsSet reports whether it has happened.
func (e *Event) IsSet() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.set
}

func (e *Event) join(s *System) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = append(e.waiting, s)
}

func (e *Event) leave(s *System) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(e.waiting, s); i >= 0 {
		e.waiting = slices.Delete(e.waiting, i, i+1)
	}
}

// joinEvents has the events of subs wake the System, and reports whether there is one.
func (s *System) joinEvents(subs []Subscription) bool {
	found := false
	for i := range subs {
		if subs[i].Event != nil {
			subs[i].Event.join(s)
			found = true
		}
	}
	return found
}

func (s *System) leaveEvents(subs []Subscription) {
	for i := range subs {
		if subs[i].Event != nil {
			subs[i].Event.leave(s)
		}
	}
}

// anySet reports whether an event of subs has happened.
func anySet(subs []Subscription) bool {
	return slices.ContainsFunc(subs, func(s Subscription) bool { return s.Event != nil && s.Event.IsSet() })
}

// park sleeps for at most left nanoseconds without a thread, until the bell rings.
func (w *waiter) park(left int64) wake {
	var timer <-chan time.Time
	if left != Forever {
		t := time.NewTimer(time.Duration(left))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-w.alarm:
		return w.heard()
	case <-timer:
		return wakeTimeout
	}
}

// heard tells what has rung the bell.
func (w *waiter) heard() wake {
	if w.rung.Swap(false) {
		return wakeInterrupt
	}
	return wakeEvent
}

// Cancel ends every wait of the guest, now and from now on, with ECANCELED. It may be called from
// any goroutine.
func (s *System) Cancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.waiter.cancelled.Store(true)
	s.waiter.ring()
}

// canceled is the error of a wait after Cancel.
func (w *waiter) canceled() error {
	if w.cancelled.Load() {
		return unix.ECANCELED
	}
	return nil
}
