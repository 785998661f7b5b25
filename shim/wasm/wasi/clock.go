package wasi

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Forever is a deadline that does not come.
const Forever = math.MaxInt64

// Clock is one of a guest's clocks.
type Clock uint8

const (
	Realtime Clock = iota
	Monotonic
	ProcessCPU
	ThreadCPU
)

// hostClocks maps clocks to Linux's.
var hostClocks = [...]int32{
	Realtime:   unix.CLOCK_REALTIME,
	Monotonic:  unix.CLOCK_MONOTONIC,
	ProcessCPU: unix.CLOCK_PROCESS_CPUTIME_ID,
	ThreadCPU:  unix.CLOCK_PROCESS_CPUTIME_ID, // its only one, which runs on many of the host's
}

// Monotonic is the guest's monotonic clock, in nanoseconds. It starts above zero when the System is
// made, and costs no system call.
func (s *System) Monotonic() int64 { return int64(time.Since(s.epoch)) + int64(time.Second) }

// Now reads a clock, in nanoseconds; Realtime counts from 1970.
func (s *System) Now(c Clock) (uint64, error) {
	switch c {
	case Realtime:
		return uint64(time.Now().UnixNano()), nil
	case Monotonic:
		return uint64(s.Monotonic()), nil
	case ProcessCPU, ThreadCPU:
		var t unix.Timespec
		err := unix.ClockGettime(hostClocks[c], &t)
		return Nanoseconds(t), err
	}
	return 0, unix.EINVAL
}

// Resolution is the resolution of a clock, in nanoseconds, 1 at least.
func (s *System) Resolution(c Clock) (uint64, error) {
	if int(c) >= len(hostClocks) {
		return 0, unix.EINVAL
	}
	var t unix.Timespec
	if err := unix.ClockGetres(hostClocks[c], &t); err != nil {
		return 0, err
	}
	return max(Nanoseconds(t), 1), nil
}

// Deadline translates a time of a clock, or the distance to one, into a time of Monotonic for Poll.
// CPU clocks are ENOTSUP.
func (s *System) Deadline(c Clock, t uint64, absolute bool) (int64, error) {
	now := s.Monotonic()
	switch c {
	case Realtime:
		if absolute {
			wall := uint64(time.Now().UnixNano())
			if t <= wall {
				return now, nil
			}
			t -= wall
		}
	case Monotonic:
		if absolute {
			return int64(min(t, Forever)), nil
		}
	case ProcessCPU, ThreadCPU:
		return 0, unix.ENOTSUP
	default:
		return 0, unix.EINVAL
	}
	if t > uint64(Forever-now) {
		return Forever, nil
	}
	return now + int64(t), nil
}

// Nanoseconds is a time since 1970. A time before that, or after the year 2554, is cut off.
func Nanoseconds(t unix.Timespec) uint64 {
	seconds := int64(t.Sec)
	if seconds < 0 {
		return 0
	}
	if uint64(seconds) > math.MaxUint64/1_000_000_000-1 {
		return math.MaxUint64
	}
	return uint64(seconds)*1e9 + uint64(t.Nsec)
}
