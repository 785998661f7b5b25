package views

import "testing"

// The node's health is part of what is watched: that events are followed, or are not any more,
// wakes those who watch, once.
func TestListenWakes(t *testing.T) {
	var v Views
	for n, on := range []bool{true, true, false, false} {
		changed := v.Watch()
		v.Listen(on)
		woken := false
		select {
		case <-changed:
			woken = true
		default:
		}
		if first := n%2 == 0; woken != first || v.Listening() != on {
			t.Errorf("call %d with %v: woken %v, listening %v", n, on, woken, v.Listening())
		}
	}
}
