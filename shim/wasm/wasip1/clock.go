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

// askClock is a function that asks a clock for a number. result is the parameter with its address.
func askClock(result int, ask func(*wasi.System, wasi.Clock) (uint64, error)) func(*Host, api.Memory, []uint64) error {
	return func(h *Host, mem api.Memory, p []uint64) error {
		clock, err := getClock(p[0])
		if err != nil {
			return err
		}
		out, err := Record(mem, p[result], 8)
		if err != nil {
			return err
		}
		number, err := ask(h.system, clock)
		if err != nil {
			return err
		}
		put64(out, number)
		return nil
	}
}
