package engine

import (
	"fmt"
	"testing"
)

// An idle guest has little of its files mapped: starting it looked at most of the program and, of
// a Go guest, of its machine code, several MiB of each.
func TestIdleGuestsForgetTheirStart(t *testing.T) {
	const most = 6 << 10                // KiB
	for _, g := range lightGuests[:2] { // the third one needs a network
		t.Run(g.name, func(t *testing.T) {
			b := newBench(t, g.name, g.args...)
			b.engine = shared.engineWith(t, 0)
			c := b.create()
			start(t, c.Init())
			b.stdout.await(t, g.says)
			mapped := 0
			eventually(t, "its files are no longer mapped", func() bool {
				s := status(t, fmt.Sprintf("/proc/%d/status", c.Init().Pid()))
				if _, err := fmt.Sscan(s["RssFile"], &mapped); err != nil {
					t.Fatalf("%v: %v", s["RssFile"], err)
				}
				return mapped < most
			})
		})
	}
}
