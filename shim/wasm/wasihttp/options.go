package wasihttp

import (
	"errors"
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
type requestOptions struct {
	connect, firstByte, betweenBytes timeout
	frozen                           bool // it cannot be changed
}

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

// errImmutable is for a change of options that cannot be changed.
var errImmutable = errors.New("the options are those of a request")

// changeTimeout is setTimeout of WASI 0.3.
func changeTimeout(of func(*requestOptions) *timeout) func(*canonical.Call, []uint64, uint32) error {
	set := setTimeout(of)
	return func(c *canonical.Call, p []uint64, out uint32) error {
		if canonical.Get[*requestOptions](c, p[0]).frozen {
			return errImmutable
		}
		return set(c, p, out)
	}
}

// putOptionsError writes a request-options-error, which is always that of errImmutable.
func putOptionsError(c *canonical.Call, at uint32, _ error) { c.Put8(at, 1) }

func optionsClone(c *canonical.Call, p []uint64, _ uint32) error {
	o := *canonical.Get[*requestOptions](c, p[0])
	o.frozen = false
	p[0] = uint64(c.Add(&o, 0))
	return nil
}

func connectTimeout(o *requestOptions) *timeout      { return &o.connect }
func firstByteTimeout(o *requestOptions) *timeout    { return &o.firstByte }
func betweenBytesTimeout(o *requestOptions) *timeout { return &o.betweenBytes }
