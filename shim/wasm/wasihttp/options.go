package wasihttp

import (
	"math"
	"time"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
)

// timeout is a duration of a guest's, in nanoseconds, if it has set one.
type timeout struct {
	set   bool
	nanos uint64
}

// or is the timeout, or what applies without one.
func (t timeout) or(other time.Duration) time.Duration {
	if !t.set {
		return other
	}
	return time.Duration(min(t.nanos, math.MaxInt64))
}

// requestOptions is the resource of that name.
type requestOptions struct{ connect, firstByte, betweenBytes timeout }

func (*requestOptions) Drop() {}

func newRequestOptions(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(&requestOptions{}, 0))
	return nil
}

// getTimeout is the function that returns one of the timeouts.
func getTimeout(of func(*requestOptions) *timeout) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, out uint32) error {
		t := of(canonical.Get[*requestOptions](c, p[0]))
		c.PutBool(out, t.set)
		c.Put64(out+8, t.nanos)
		return nil
	}
}

// setTimeout is the function that sets one of the timeouts. All are supported.
func setTimeout(of func(*requestOptions) *timeout) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		t := of(canonical.Get[*requestOptions](c, p[0]))
		if *t = (timeout{}); canonical.Discriminant(p[1], 2) == 1 {
			*t = timeout{true, p[2]}
		}
		p[0] = 0
		return nil
	}
}

func connectTimeout(o *requestOptions) *timeout      { return &o.connect }
func firstByteTimeout(o *requestOptions) *timeout    { return &o.firstByte }
func betweenBytesTimeout(o *requestOptions) *timeout { return &o.betweenBytes }
