package wasip2

import (
	"encoding/binary"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

var monotonicFunctions = []function{
	{name: "now", results: "I", call: monotonicNow},
	{name: "resolution", results: "I", call: monotonicResolution},
	{name: "subscribe-instant", params: "I", results: "i", call: subscribeInstant},
	{name: "subscribe-duration", params: "I", results: "i", call: subscribeDuration},
}

var wallFunctions = []function{
	{name: "now", params: "i", answer: pair, call: wallNow},
	{name: "resolution", params: "i", answer: pair, call: wallResolution},
}

func monotonicNow(c *call, p []uint64, _ uint32) error {
	p[0] = uint64(c.host.system.Monotonic())
	return nil
}

func monotonicResolution(c *call, p []uint64, _ uint32) (err error) {
	p[0], err = c.host.system.Resolution(wasi.Monotonic)
	return err
}

func subscribeInstant(c *call, p []uint64, _ uint32) error  { return c.subscribe(p, true) }
func subscribeDuration(c *call, p []uint64, _ uint32) error { return c.subscribe(p, false) }

// subscribe makes a pollable of a time.
func (c *call) subscribe(p []uint64, absolute bool) error {
	due, err := c.host.system.Deadline(wasi.Monotonic, p[0], absolute)
	if err != nil {
		return err
	}
	p[0] = uint64(c.host.handles.add(&pollable{due: due}, 0))
	return nil
}

func wallNow(c *call, _ []uint64, out uint32) error {
	now, err := c.host.system.Now(wasi.Realtime)
	c.putDatetime(out, now/1e9, uint32(now%1e9))
	return err
}

func wallResolution(c *call, _ []uint64, out uint32) error {
	resolution, err := c.host.system.Resolution(wasi.Realtime)
	c.putDatetime(out, resolution/1e9, uint32(resolution%1e9))
	return err
}

// putDatetime writes a datetime.
func (c *call) putDatetime(out uint32, seconds uint64, nanoseconds uint32) {
	c.put64(out, seconds)
	c.put32(out+8, nanoseconds)
}

var randomFunctions = []function{
	{name: "get-random-bytes", params: "Ii", answer: pointer, reallocs: true, call: randomBytes},
	{name: "get-random-u64", results: "I", call: random64},
}

// insecureFunctions are as good as those of wasi:random/random: the kernel's random numbers cost
// little.
var insecureFunctions = []function{
	{name: "get-insecure-random-bytes", params: "Ii", answer: pointer, reallocs: true, call: randomBytes},
	{name: "get-insecure-random-u64", results: "I", call: random64},
}

// maxRandom bounds what one call may ask for, in bytes.
const maxRandom = 64 << 20

func randomBytes(c *call, p []uint64, out uint32) error {
	if p[0] > maxRandom {
		trapf("%d random bytes are more than %d", p[0], maxRandom)
	}
	at := c.alloc(1, uint32(p[0]))
	c.put32(out, at)
	c.put32(out+4, uint32(p[0]))
	return c.host.system.Random(c.view(at, p[0]))
}

func random64(c *call, p []uint64, _ uint32) (err error) {
	p[0], err = c.host.random()
	return err
}

func (h *Host) random() (uint64, error) {
	var b [8]byte
	err := h.system.Random(b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// insecureSeed is the same whenever a guest asks.
func insecureSeed(c *call, _ []uint64, out uint32) error {
	h := c.host
	if h.seed == nil {
		lower, err := h.random()
		if err != nil {
			return err
		}
		upper, err := h.random()
		if err != nil {
			return err
		}
		h.seed = &[2]uint64{lower, upper}
	}
	c.put64(out, h.seed[0])
	c.put64(out+8, h.seed[1])
	return nil
}
