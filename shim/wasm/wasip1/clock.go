package wasip1

import (
	"math"
	"time"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"
)

// forever is a deadline that does not come.
const forever = math.MaxInt64

// hostClocks maps the specification's clocks to Linux's.
var hostClocks = [...]int32{
	clockRealtime:  unix.CLOCK_REALTIME,
	clockMonotonic: unix.CLOCK_MONOTONIC,
	clockProcess:   unix.CLOCK_PROCESS_CPUTIME_ID,
	clockThread:    unix.CLOCK_THREAD_CPUTIME_ID,
}

// monotonic is the guest's monotonic clock, in nanoseconds. It begins above zero when the Host is made,
// and costs no system call.
func (h *Host) monotonic() int64 { return int64(time.Since(h.epoch)) + int64(time.Second) }

func clockTimeGet(h *Host, mem api.Memory, p []uint64) errno {
	out, e := record(mem, p[2], 8)
	if e != success {
		return e
	}
	switch clock := uint32(p[0]); clock {
	case clockRealtime:
		put64(out, uint64(time.Now().UnixNano()))
	case clockMonotonic:
		put64(out, uint64(h.monotonic()))
	case clockProcess, clockThread:
		var t unix.Timespec
		if err := unix.ClockGettime(hostClocks[clock], &t); err != nil {
			return toErrno(err)
		}
		put64(out, nanoseconds(t))
	default:
		return einval
	}
	return success
}

func clockResGet(_ *Host, mem api.Memory, p []uint64) errno {
	clock := uint32(p[0])
	if clock >= uint32(len(hostClocks)) {
		return einval
	}
	out, e := record(mem, p[1], 8)
	if e != success {
		return e
	}
	var t unix.Timespec
	if err := unix.ClockGetres(hostClocks[clock], &t); err != nil {
		return toErrno(err)
	}
	put64(out, max(nanoseconds(t), 1))
	return success
}

// deadline translates a clock subscription into a time of h.monotonic.
func (h *Host) deadline(clock uint32, timeout uint64, flags uint16) (int64, errno) {
	if flags&^clockAbsolute != 0 {
		return 0, einval
	}
	now := h.monotonic()
	switch clock {
	case clockRealtime:
		if flags&clockAbsolute != 0 {
			wall := uint64(time.Now().UnixNano())
			if timeout <= wall {
				return now, success
			}
			timeout -= wall
		}
	case clockMonotonic:
		if flags&clockAbsolute != 0 {
			return int64(min(timeout, forever)), success
		}
	case clockProcess, clockThread:
		return 0, enotsup
	default:
		return 0, einval
	}
	if timeout > uint64(forever-now) {
		return forever, success
	}
	return now + int64(timeout), success
}
