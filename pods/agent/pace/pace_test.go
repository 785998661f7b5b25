package pace

import (
	"testing"
	"time"
)

func TestNext(t *testing.T) {
	start := time.Unix(1700000000, 0)
	p := Since(start)
	for _, c := range []struct{ now, every, want time.Duration }{
		{0, 10 * time.Second, 10 * time.Second},
		{time.Nanosecond, 10 * time.Second, 10 * time.Second},
		{10*time.Second - 1, 10 * time.Second, 10 * time.Second},
		{10 * time.Second, 10 * time.Second, 20 * time.Second},
		{11 * time.Second, 20 * time.Second, 20 * time.Second}, // with the one before
		{time.Hour + 1, time.Minute, time.Hour + time.Minute},
		{-time.Second, 10 * time.Second, 0},
		{-10 * time.Second, 10 * time.Second, 0},
		{-11 * time.Second, 10 * time.Second, -10 * time.Second},
	} {
		if got := p.Next(start.Add(c.now), c.every).Sub(start); got != c.want {
			t.Errorf("%v after the start, every %v: %v, want %v", c.now, c.every, got, c.want)
		}
	}
}
