package wasip2

import (
	"encoding/binary"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

var monotonicFunctions = []canonical.Function{
	{Name: "now", Results: "I", Call: monotonicNow},
	{Name: "resolution", Results: "I", Call: monotonicResolution},
	{Name: "subscribe-instant", Params: "I", Results: "i", Call: subscribeInstant},
	{Name: "subscribe-duration", Params: "I", Results: "i", Call: subscribeDuration},
}

var wallFunctions = []canonical.Function{
	{Name: "now", Params: "i", Answer: canonical.Pair, Call: wallNow},
	{Name: "resolution", Params: "i", Answer: canonical.Pair, Call: wallResolution},
}

func monotonicNow(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(Of(c).system.Monotonic())
	return nil
}

func monotonicResolution(c *canonical.Call, p []uint64, _ uint32) (err error) {
	p[0], err = Of(c).system.Resolution(wasi.Monotonic)
	return err
}

func subscribeInstant(c *canonical.Call, p []uint64, _ uint32) error { return subscribeTo(c, p, true) }
func subscribeDuration(c *canonical.Call, p []uint64, _ uint32) error {
	return subscribeTo(c, p, false)
}

// subscribe makes a pollable of a time.
func subscribeTo(c *canonical.Call, p []uint64, absolute bool) error {
	due, err := Of(c).system.Deadline(wasi.Monotonic, p[0], absolute)
	if err != nil {
		return err
	}
	p[0] = uint64(c.Add(&Pollable{due: due}, 0))
	return nil
}

func wallNow(c *canonical.Call, _ []uint64, out uint32) error {
	now, err := Of(c).system.Now(wasi.Realtime)
	putDatetime(c, out, now/1e9, uint32(now%1e9))
	return err
}

func wallResolution(c *canonical.Call, _ []uint64, out uint32) error {
	resolution, err := Of(c).system.Resolution(wasi.Realtime)
	putDatetime(c, out, resolution/1e9, uint32(resolution%1e9))
	return err
}

// putDatetime writes a datetime.
func putDatetime(c *canonical.Call, out uint32, seconds uint64, nanoseconds uint32) {
	c.Put64(out, seconds)
	c.Put32(out+8, nanoseconds)
}

var randomFunctions = []canonical.Function{
	{Name: "get-random-bytes", Params: "Ii", Answer: canonical.Pointer, Reallocs: true, Call: randomBytes},
	{Name: "get-random-u64", Results: "I", Call: random64},
}

// insecureFunctions are as good as those of wasi:random/random: the kernel's random numbers cost
// little.
var insecureFunctions = []canonical.Function{
	{Name: "get-insecure-random-bytes", Params: "Ii", Answer: canonical.Pointer, Reallocs: true, Call: randomBytes},
	{Name: "get-insecure-random-u64", Results: "I", Call: random64},
}

// maxRandom bounds what one call may ask for, in bytes.
const maxRandom = 64 << 20

func randomBytes(c *canonical.Call, p []uint64, out uint32) error {
	if p[0] > maxRandom {
		canonical.Trapf("%d random bytes are more than %d", p[0], maxRandom)
	}
	at := c.PutList(out, int(p[0]), 1, 1)
	return Of(c).system.Random(c.View(at, p[0]))
}

func random64(c *canonical.Call, p []uint64, _ uint32) (err error) {
	p[0], err = Of(c).random()
	return err
}

func (i *Instance) random() (uint64, error) {
	var b [8]byte
	err := i.system.Random(b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// insecureSeed is the same whenever a guest asks.
func insecureSeed(c *canonical.Call, _ []uint64, out uint32) error {
	i := Of(c)
	if i.seed == nil {
		lower, err := i.random()
		if err != nil {
			return err
		}
		upper, err := i.random()
		if err != nil {
			return err
		}
		i.seed = &[2]uint64{lower, upper}
	}
	c.Put64(out, i.seed[0])
	c.Put64(out+8, i.seed[1])
	return nil
}
