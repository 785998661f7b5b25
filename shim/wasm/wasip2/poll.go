package wasip2

import (
	"encoding/binary"

	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// maxSubscriptions bounds the host memory that one poll needs.
const maxSubscriptions = 1 << 16

// waiter is a stream that can be waited for.
type waiter interface {
	// waitsFor is what makes it ready, false if it always is.
	waitsFor() (wasi.Subscription, bool)
}

// pollable is the resource of that name: of a stream, or of a time of the monotonic clock.
type pollable struct {
	of  waiter // nil for a time
	due int64  // of System.Monotonic
}

func (*pollable) drop() {}

// subscription is what makes the pollable ready. What always is has been due since the clock's
// start.
func (p *pollable) subscription() wasi.Subscription {
	if p.of == nil {
		return wasi.Subscription{Due: p.due}
	}
	if s, waits := p.of.waitsFor(); waits {
		return s
	}
	return wasi.Subscription{}
}

var pollFunctions = []function{
	{name: "[method]pollable.ready", params: "i", results: "i", call: pollReady},
	{name: "[method]pollable.block", params: "i", call: pollBlock},
	{name: "poll", params: "iii", answer: pointer, reallocs: true, call: poll},
	{name: "[resource-drop]pollable", params: "i", call: drop[*pollable]},
}

// wait sleeps until a subscription is ready.
func (h *Host) wait(s wasi.Subscription) error {
	h.subs = append(h.subs[:0], s)
	_, err := h.system.Poll(h.subs)
	return err
}

func pollReady(c *call, p []uint64, _ uint32) error {
	s := get[*pollable](c.host, p[0]).subscription()
	// What is due already ends the wait at once.
	c.host.subs = append(c.host.subs[:0], s, wasi.Subscription{})
	if _, err := c.host.system.Poll(c.host.subs); err != nil {
		return err
	}
	p[0] = 0
	if c.host.subs[0].Ready {
		p[0] = 1
	}
	return nil
}

func pollBlock(c *call, p []uint64, _ uint32) error {
	return c.host.wait(get[*pollable](c.host, p[0]).subscription())
}

func poll(c *call, p []uint64, out uint32) error {
	h := c.host
	in := c.list(p[0], p[1], 4, 4)
	if len(in) == 0 {
		trapf("the list of pollables is empty")
	}
	if len(in)/4 > maxSubscriptions {
		trapf("more than %d pollables", maxSubscriptions)
	}
	h.subs = h.subs[:0]
	for ; len(in) > 0; in = in[4:] {
		h.subs = append(h.subs, get[*pollable](h, uint64(binary.LittleEndian.Uint32(in))).subscription())
	}
	n, err := h.system.Poll(h.subs)
	if err != nil {
		return err
	}
	at := c.putList(out, n, 4, 4)
	for i := range h.subs {
		if h.subs[i].Ready {
			c.put32(at, uint32(i))
			at += 4
		}
	}
	return nil
}
