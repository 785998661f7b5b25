package wasip2

import (
	"encoding/binary"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// maxSubscriptions bounds the host memory that one poll needs.
const maxSubscriptions = 1 << 16

// Waiter is a resource that can be waited for.
type Waiter interface {
	canonical.Resource
	// WaitsFor is what makes it ready, false if it always is.
	WaitsFor() (wasi.Subscription, bool)
}

// Pollable is the resource of that name: of a stream, or of a time of the monotonic clock.
type Pollable struct {
	of  Waiter // nil for a time
	due int64  // of System.Monotonic
}

// NewPollable makes a pollable of what it waits for. Its handle is a child of that one's.
func NewPollable(of Waiter) *Pollable { return &Pollable{of: of} }

// Drop implements canonical.Resource.
func (*Pollable) Drop() {}

// subscription is what makes the pollable ready. What always is has been due since the clock's
// start.
func (p *Pollable) subscription() wasi.Subscription {
	if p.of == nil {
		return wasi.Subscription{Due: p.due}
	}
	if s, waits := p.of.WaitsFor(); waits {
		return s
	}
	return wasi.Subscription{}
}

// Subscribe is the function subscribe of a type.
func Subscribe[T Waiter](c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(NewPollable(canonical.Get[T](c, p[0])), uint32(p[0])))
	return nil
}

var pollFunctions = []canonical.Function{
	{Name: "[method]pollable.ready", Params: "i", Results: "i", Call: pollReady},
	{Name: "[method]pollable.block", Params: "i", Call: pollBlock},
	{Name: "poll", Params: "iii", Answer: canonical.Pointer, Reallocs: true, Call: poll},
	{Name: "[resource-drop]pollable", Params: "i", Call: canonical.Drop[*Pollable]},
}

// Wait sleeps until a subscription is ready.
func (i *Instance) Wait(s wasi.Subscription) error {
	i.subs = append(i.subs[:0], s)
	_, err := i.system.Poll(i.subs)
	return err
}

func pollReady(c *canonical.Call, p []uint64, _ uint32) error {
	i, s := Of(c), canonical.Get[*Pollable](c, p[0]).subscription()
	// What is due already ends the wait at once.
	i.subs = append(i.subs[:0], s, wasi.Subscription{})
	if _, err := i.system.Poll(i.subs); err != nil {
		return err
	}
	p[0] = 0
	if i.subs[0].Ready {
		p[0] = 1
	}
	return nil
}

func pollBlock(c *canonical.Call, p []uint64, _ uint32) error {
	return Of(c).Wait(canonical.Get[*Pollable](c, p[0]).subscription())
}

func poll(c *canonical.Call, p []uint64, out uint32) error {
	i := Of(c)
	in := c.List(p[0], p[1], 4, 4)
	if len(in) == 0 {
		canonical.Trapf("the list of pollables is empty")
	}
	if len(in)/4 > maxSubscriptions {
		canonical.Trapf("more than %d pollables", maxSubscriptions)
	}
	i.subs = i.subs[:0]
	for ; len(in) > 0; in = in[4:] {
		i.subs = append(i.subs, canonical.Get[*Pollable](c, uint64(binary.LittleEndian.Uint32(in))).subscription())
	}
	n, err := i.system.Poll(i.subs)
	if err != nil {
		return err
	}
	at := c.PutList(out, n, 4, 4)
	for n := range i.subs {
		if i.subs[n].Ready {
			c.Put32(at, uint32(n))
			at += 4
		}
	}
	return nil
}
