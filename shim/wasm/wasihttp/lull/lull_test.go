package lull

import (
	"testing"
	"time"
)

// TestTimerEnds has the timer run only while functions are added, and keep none of them; one that
// is added afterwards starts it again. Each is called once, and not at once.
func TestTimerEnds(t *testing.T) {
	timer := &Timer{}
	for round := range 3 {
		const many = 10
		called, added := make(chan time.Duration, 2*many), time.Now()
		for range many {
			timer.Add(func() { called <- time.Since(added) })
		}
		for n := range many {
			select {
			case waited := <-called:
				if waited < Time/2 {
					t.Errorf("round %d: called after %s", round, waited)
				}
			case <-time.After(time.Minute):
				t.Fatalf("round %d: %d of %d were called", round, n, many)
			}
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(Time) {
			timer.mu.Lock()
			rests := len(timer.fresh) == 0 && len(timer.old) == 0
			timer.mu.Unlock()
			if rests {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("round %d: the timer goes on", round)
			}
		}
		if timer.timer.Stop() {
			t.Errorf("round %d: the timer runs for nothing", round)
		}
		if len(called) > 0 {
			t.Errorf("round %d: one was called twice", round)
		}
	}
}
