package wasip2

import (
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
)

// InputStream is what the resource input-stream stands for.
type InputStream interface {
	Waiter
	// Read reads at most n bytes, without waiting unless block is set. The bytes are valid until the
	// next Read of a stream of the instance. None without an error are none so far. ErrClosed is the
	// end; any other error is one of the stream, which is closed from then on.
	Read(i *Instance, n uint64, block bool) ([]byte, error)
}

// OutputStream is what the resource output-stream stands for. NewOutputStream makes one of it.
type OutputStream interface {
	Waiter
	// Check returns how many bytes can be written without waiting.
	Check() (uint64, error)
	// Write writes all of b, and waits where there is no room for it.
	Write(i *Instance, b []byte) error
	// Flush has what was written sent, and waits until it is if that is asked for.
	Flush(i *Instance, wait bool) error
}

const (
	// maxRead is how much one read of a guest's moves, in bytes.
	maxRead = 64 << 10

	// maxPermit is how much a guest may write into a file at once, and into any stream before it
	// has asked check-write, in bytes.
	maxPermit = 1 << 20

	// maxBlocking is the specification's limit of one blocking-write-and-flush, in bytes.
	maxBlocking = 4096
)

// outputStream is the resource output-stream.
type outputStream struct {
	OutputStream
	permit uint64 // what may be written before the next check-write
}

// NewOutputStream makes the resource.
func NewOutputStream(s OutputStream) canonical.Resource {
	return &outputStream{OutputStream: s, permit: maxPermit}
}

var streamFunctions = []canonical.Function{
	{Name: "[method]input-stream.read", Params: "iIi", Answer: flow(8, 4), Reallocs: true, Call: readTo(false)},
	{Name: "[method]input-stream.blocking-read", Params: "iIi", Answer: flow(8, 4), Reallocs: true, Call: readTo(true)},
	{Name: "[method]input-stream.skip", Params: "iIi", Answer: flow(8, 8), Call: skip(false)},
	{Name: "[method]input-stream.blocking-skip", Params: "iIi", Answer: flow(8, 8), Call: skip(true)},
	{Name: "[method]input-stream.subscribe", Params: "i", Results: "i", Call: Subscribe[InputStream]},
	{Name: "[resource-drop]input-stream", Params: "i", Call: canonical.Drop[InputStream]},
	{Name: "[method]output-stream.check-write", Params: "ii", Answer: flow(8, 8), Call: outputCheckWrite},
	{Name: "[method]output-stream.write", Params: "iiii", Answer: flows, Call: outputWrite},
	{Name: "[method]output-stream.blocking-write-and-flush", Params: "iiii", Answer: flows, Call: outputBlockingWrite},
	{Name: "[method]output-stream.flush", Params: "ii", Answer: flows, Call: outputFlush(false)},
	{Name: "[method]output-stream.blocking-flush", Params: "ii", Answer: flows, Call: outputFlush(true)},
	{Name: "[method]output-stream.subscribe", Params: "i", Results: "i", Call: Subscribe[*outputStream]},
	{Name: "[method]output-stream.write-zeroes", Params: "iIi", Answer: flows, Call: outputWriteZeroes},
	{Name: "[method]output-stream.blocking-write-zeroes-and-flush", Params: "iIi", Answer: flows, Call: outputBlockingWriteZeroes},
	{Name: "[method]output-stream.splice", Params: "iiIi", Answer: flow(8, 8), Call: splice(false)},
	{Name: "[method]output-stream.blocking-splice", Params: "iiIi", Answer: flow(8, 8), Call: splice(true)},
	{Name: "[resource-drop]output-stream", Params: "i", Call: canonical.Drop[*outputStream]},
}

// function is what a canonical.Function calls.
type function = func(c *canonical.Call, p []uint64, out uint32) error

func readTo(block bool) function {
	return func(c *canonical.Call, p []uint64, out uint32) error {
		b, err := canonical.Get[InputStream](c, p[0]).Read(Of(c), p[1], block)
		if err != nil {
			return err
		}
		c.PutBytes(out, b)
		return nil
	}
}

func skip(block bool) function {
	return func(c *canonical.Call, p []uint64, out uint32) error {
		b, err := canonical.Get[InputStream](c, p[0]).Read(Of(c), p[1], block)
		if err != nil {
			return err
		}
		c.Put64(out, uint64(len(b)))
		return nil
	}
}

// check is check-write.
func (s *outputStream) check() (n uint64, err error) {
	if n, err = s.Check(); err == nil {
		s.permit = n
	}
	return n, err
}

// write writes what check-write permitted.
func (s *outputStream) write(i *Instance, b []byte) error {
	if err := s.spend(uint64(len(b))); err != nil {
		return err
	}
	return s.Write(i, b)
}

// spend takes n bytes from what check-write permitted.
func (s *outputStream) spend(n uint64) error {
	if n > s.permit {
		if _, err := s.Check(); err != nil {
			return err // it was closed since
		}
		canonical.Trapf("%d bytes written where check-write permits %d", n, s.permit)
	}
	s.permit -= n
	return nil
}

// flush ends what check-write permitted: a guest that flushes has waited, or will.
func (s *outputStream) flush(i *Instance, wait bool) error {
	s.permit = maxPermit
	return s.Flush(i, wait)
}

func outputCheckWrite(c *canonical.Call, p []uint64, out uint32) error {
	n, err := canonical.Get[*outputStream](c, p[0]).check()
	if err != nil {
		return err
	}
	c.Put64(out, n)
	return nil
}

func outputWrite(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*outputStream](c, p[0])
	return s.write(Of(c), c.List(p[1], p[2], 1, 1))
}

func outputBlockingWrite(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*outputStream](c, p[0])
	b := c.List(p[1], p[2], 1, 1)
	if len(b) > maxBlocking {
		canonical.Trapf("%d bytes written where %d are permitted", len(b), maxBlocking)
	}
	if err := s.Write(Of(c), b); err != nil {
		return err
	}
	return s.flush(Of(c), true)
}

func outputFlush(wait bool) function {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		return canonical.Get[*outputStream](c, p[0]).flush(Of(c), wait)
	}
}

// zeroes is what write-zeroes writes.
var zeroes [maxBlocking]byte

func outputWriteZeroes(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*outputStream](c, p[0])
	if err := s.spend(p[1]); err != nil {
		return err
	}
	return s.writeZeroes(Of(c), p[1])
}

func outputBlockingWriteZeroes(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*outputStream](c, p[0])
	if p[1] > maxBlocking {
		canonical.Trapf("%d zeroes written where %d are permitted", p[1], maxBlocking)
	}
	if err := s.writeZeroes(Of(c), p[1]); err != nil {
		return err
	}
	return s.flush(Of(c), true)
}

func (s *outputStream) writeZeroes(i *Instance, n uint64) error {
	for n > 0 {
		part := min(n, maxBlocking)
		if err := s.Write(i, zeroes[:part]); err != nil {
			return err
		}
		n -= part
	}
	return nil
}

// splice moves bytes from one stream to another.
func splice(block bool) function {
	return func(c *canonical.Call, p []uint64, out uint32) error {
		i := Of(c)
		to, from := canonical.Get[*outputStream](c, p[0]), canonical.Get[InputStream](c, p[1])
		permit, err := to.check()
		for block && err == nil && permit == 0 {
			subscription, _ := to.WaitsFor()
			if err = i.Wait(subscription); err == nil {
				permit, err = to.check()
			}
		}
		if err != nil {
			return err
		}
		n := min(p[2], permit)
		if n > 0 {
			b, err := from.Read(i, n, block)
			if err != nil {
				return err
			}
			n = uint64(len(b))
			if err := to.write(i, b); err != nil {
				return err
			}
		}
		c.Put64(out, n)
		return nil
	}
}
