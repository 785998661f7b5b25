package wasip3

import (
	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

func monotonicFunctions() []canonical.Function {
	return []canonical.Function{
		like("wasi:clocks/monotonic-clock", "now", "now"),
		like("wasi:clocks/monotonic-clock", "resolution", "get-resolution"),
		{Name: "wait-until", Params: "I", Async: true, Call: wait(true)},
		{Name: "wait-for", Params: "I", Async: true, Call: wait(false)},
	}
}

// wait ends at a time of the monotonic clock.
func wait(absolute bool) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		system := wasip2.Of(c).System()
		due, err := system.Deadline(wasi.Monotonic, p[0], absolute)
		if err != nil {
			return err
		}
		return &async.Timer{System: system, Due: due}
	}
}

func systemResolution(c *canonical.Call, p []uint64, _ uint32) (err error) {
	p[0], err = wasip2.Of(c).System().Resolution(wasi.Realtime)
	return err
}
