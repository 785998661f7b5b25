package node

import (
	"os"
	"strconv"
	"time"
)

// Patience is how long tests wait for what is to come. It is long, for machines that are busy with
// others: it only bounds how long a failure takes.
const Patience = time.Minute

// SlownessVariable is the environment variable with how many times as long as on a machine of its
// own a test may have to wait for anything. tests/vm sets it for an emulated machine.
const SlownessVariable = "SUNABA_TEST_SLOWNESS"

// Slow is a limit of time as this machine needs it. It is for limits that tell a slow thing from a
// broken one.
func Slow(limit time.Duration) time.Duration {
	if times, err := strconv.Atoi(os.Getenv(SlownessVariable)); err == nil && times > 1 {
		return limit * time.Duration(times)
	}
	return limit
}

// Within asks until it holds, for at most the given time, or longer on a slow machine. What takes
// long is asked for less often, at most half of the time: asking may start a program.
func Within(limit time.Duration, holds func() bool) bool {
	const most, mostByFar = 50 * time.Millisecond, 200 * time.Millisecond
	began := time.Now()
	for time.Since(began) < Slow(limit) {
		asked := time.Now()
		if holds() {
			return true
		}
		time.Sleep(max(min(5*time.Millisecond+time.Since(began)/20, most), min(time.Since(asked), mostByFar)))
	}
	return holds()
}
