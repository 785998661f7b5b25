package async

import (
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// Source is the writable end of a stream that the guest reads.
type Source interface {
	Work
	// Read stores at most n elements at an address, without waiting, and returns how many. None
	// without an error are none so far; io.EOF is the end, as any other error is: a stream does not
	// tell which.
	Read(c *canonical.Call, at, n uint32) (uint32, error)
	// Close is called once, when the guest reads no more or behind the end.
	Close()
}

// Bytes is what a Source of bytes may be read by without a guest: when the guest gives its stream
// back to the host.
type Bytes interface {
	Source
	ReadBytes(b []byte) (int, error)
}

// Sink is the readable end of a stream of bytes that the guest writes.
type Sink interface {
	Work
	// Write takes bytes, without waiting, and returns how many. None without an error are none so
	// far. An error ends it.
	Write(b []byte) (int, error)
	// Close is called once, when the guest writes no more or after an error.
	Close()
}

// NewStream gives the guest the readable end of a stream.
func NewStream(c *canonical.Call, element Element, from Source) uint32 {
	s := &shared{tasks: of(c), element: element, source: from}
	return s.give(c, false)
}

// Drain takes the readable end of a stream of bytes from the guest and has the sink read it.
func Drain(c *canonical.Call, handle uint64, to Sink) { TakeStream(c, handle).Drain(to) }

// take takes a readable end from the guest.
func take(c *canonical.Call, handle uint64, k kind) *shared {
	e := k.get(c, handle)
	switch {
	case e.state != idle:
		canonical.Trapf("the end %d of a stream or future is given away while it is in use, or done", e.index)
	case e.set != nil:
		canonical.Trapf("the end %d of a stream or future is given away while it is in a waitable set", e.index)
	}
	canonical.Take[*end](c, handle)
	return e.of
}

// WaitsFor implements Work.
func (s *shared) WaitsFor() (wasi.Subscription, bool) {
	if s.source != nil {
		return s.source.WaitsFor()
	}
	return s.sink.WaitsFor()
}

// step continues the copy that waits for the host's end.
func (s *shared) step() bool {
	c := s.pending
	if c == nil {
		return true
	}
	if c.left() == 0 {
		s.ended(copyCompleted)
		return true
	}
	var n uint32
	var err error
	if s.source != nil {
		n, err = s.source.Read(&c.call, c.place(), c.left())
	} else {
		var written int
		written, err = s.sink.Write(c.call.View(c.place(), uint64(c.left())))
		n = uint32(written)
	}
	c.progress += n
	switch {
	case err != nil:
		s.dropped = true
		s.close()
		s.ended(copyDropped)
	case n > 0:
		s.ended(copyCompleted)
	default:
		return false
	}
	return true
}

// close closes the host's end.
func (s *shared) close() {
	if s.source != nil {
		s.source.Close()
		return
	}
	s.sink.Close()
}

// spliced is what moves from a source to a sink, without the guest.
type spliced struct {
	tasks *Tasks
	from  Bytes
	to    Sink
	bytes []byte // that are not written yet
	room  []byte
}

// maxSplices bounds how many an instance has at a time, since they have no handle.
const maxSplices = 100

func (t *Tasks) splice(from Source, to Sink) {
	bytes, ok := from.(Bytes)
	if !ok {
		canonical.Trapf("a stream of the host's is given back, and cannot be")
	}
	if t.splices == maxSplices {
		canonical.Trapf("more than %d streams from the host to the host", maxSplices)
	}
	t.splices++
	t.add(&spliced{tasks: t, from: bytes, to: to, room: make([]byte, 16<<10)})
}

// close ends the moving.
func (s *spliced) close() {
	s.tasks.splices--
	s.from.Close()
	s.to.Close()
}

// WaitsFor implements Work.
func (s *spliced) WaitsFor() (wasi.Subscription, bool) {
	if len(s.bytes) > 0 {
		return s.to.WaitsFor()
	}
	return s.from.WaitsFor()
}

func (s *spliced) step() bool {
	if len(s.bytes) == 0 {
		n, err := s.from.ReadBytes(s.room)
		if s.bytes = s.room[:n]; err != nil {
			s.close()
		}
		return err != nil
	}
	n, err := s.to.Write(s.bytes)
	s.bytes = s.bytes[n:]
	if err != nil {
		s.close()
	}
	return err != nil
}
