package wasip1

import (
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// clocks maps the specification's clocks.
var clocks = [...]wasi.Clock{
	clockRealtime:  wasi.Realtime,
	clockMonotonic: wasi.Monotonic,
	clockProcess:   wasi.ProcessCPU,
	clockThread:    wasi.ThreadCPU,
}

// getClock reads a clock's number.
func getClock(param uint64) (wasi.Clock, error) {
	if uint32(param) >= uint32(len(clocks)) {
		return 0, unix.EINVAL
	}
	return clocks[uint32(param)], nil
}

func clockTimeGet(h *Host, mem api.Memory, p []uint64) error {
	out, err := Record(mem, p[2], 8)
	if err != nil {
		return err
	}
	clock, err := getClock(p[0])
	if err != nil {
		return err
	}
	now, err := h.system.Now(clock)
	if err != nil {
		return err
	}
	put64(out, now)
	return nil
}

func clockResGet(h *Host, mem api.Memory, p []uint64) error {
	clock, err := getClock(p[0])
	if err != nil {
		return err
	}
	out, err := Record(mem, p[1], 8)
	if err != nil {
		return err
	}
	resolution, err := h.system.Resolution(clock)
	if err != nil {
		return err
	}
	put64(out, resolution)
	return nil
}
