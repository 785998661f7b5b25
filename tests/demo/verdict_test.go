package main

import (
	"strings"
	"testing"
	"time"
)

// A missed goal and "all as it should be" do not go together.
func TestVerdict(t *testing.T) {
	for missed, want := range map[int]string{
		0: "All as it should be, in 9 s, and nothing is left.",
		1: "Everything worked, in 9 s, and nothing is left. One goal was missed, ",
		3: "Everything worked, in 9 s, and nothing is left. 3 goals were missed, ",
	} {
		d := &demo{missed: missed}
		if got := d.verdict(9 * time.Second); !strings.HasPrefix(got, want) || missed > 0 && strings.Contains(got, "should be") {
			t.Errorf("%d missed: %s", missed, got)
		}
	}
}
