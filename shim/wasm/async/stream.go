package async

import (
	"math"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
)

// Element is what the values of a stream or future are, in memory.
type Element struct {
	Size, Align uint32
	Number      bool // a number, or nothing at all
}

// Elements of the streams and futures that have a name of their own.
var (
	Byte    = Element{1, 1, true}
	Nothing = Element{0, 1, true}
)

// maxElements bounds one copy.
const maxElements = 1<<28 - 1

// How a copy ended.
const (
	copyCompleted uint32 = iota
	copyDropped
	copyCancelled
)

// state is that of an end.
type state uint8

const (
	idle state = iota
	copying
	done
)

// shared is a stream or a future.
type shared struct {
	tasks   *Tasks
	element Element
	future  bool
	dropped bool      // one end was dropped
	pending *transfer // of a guest's end, that waits for the other end

	// The end of the host's, if there is one.
	source   Source
	sink     Sink
	promise  *Promise
	receiver *receiver // nil when it has its value
}

// end is the resource of an end of the guest's.
type end struct {
	waitable
	of       *shared
	writable bool
	state    state
	transfer *transfer // that it waits for
}

// Held implements canonical.Sized.
func (e *end) Held() int {
	if p := e.of.promise; p != nil {
		return p.Held
	}
	if s, ok := e.of.source.(interface{ Held() int }); ok {
		return s.Held()
	}
	return 0
}

// transfer is a reading or writing that the guest has asked for.
type transfer struct {
	end      *end
	call     canonical.Call
	at       uint32 // in memory
	length   uint32 // in elements, as is progress
	progress uint32
}

func (c *transfer) left() uint32  { return c.length - c.progress }
func (c *transfer) place() uint32 { return c.at + c.progress*c.end.of.element.Size }

// code is that of the events of the end.
func (e *end) code() uint32 {
	switch {
	case e.of.future && e.writable:
		return eventFutureWrite
	case e.of.future:
		return eventFutureRead
	case e.writable:
		return eventStreamWrite
	}
	return eventStreamRead
}

// tells has the end tell how its copy ended.
func (c *transfer) tells(result uint32) {
	e := c.end
	e.pending = func() event {
		e.transfer = nil
		if e.state = idle; result == copyDropped || e.of.future && result == copyCompleted {
			e.state = done
		}
		payload := result
		if !e.of.future {
			payload |= c.progress << codeBits
		}
		return event{e.code(), e.index, payload}
	}
}

// ended ends a copy that waits.
func (s *shared) ended(result uint32) {
	c := s.pending
	s.pending = nil
	c.tells(result)
}

// Drop implements canonical.Resource, also at the end of the instance.
func (e *end) Drop() {
	e.join(nil)
	s := e.of
	if s.pending != nil && s.pending.end == e {
		s.cease()
	}
	s.drop()
}

// drop tells the other end that this one is closed.
func (s *shared) drop() {
	if s.dropped {
		return
	}
	s.dropped = true
	switch {
	case s.source != nil:
		s.source.Close()
	case s.sink != nil:
		s.sink.Close()
	case s.promise != nil:
		s.promise.drop()
	case s.receiver != nil:
		s.received(nil, false)
	case s.pending != nil:
		s.ended(copyDropped)
	}
}

// cease takes back what waits.
func (s *shared) cease() {
	s.pending = nil
	s.tasks.remove(s)
}

func newPair(element Element, future bool) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		s := &shared{tasks: of(c), element: element, future: future}
		reader, writer := s.give(c, false), s.give(c, true)
		p[0] = uint64(reader) | uint64(writer)<<32
		return nil
	}
}

// give gives the guest an end.
func (s *shared) give(c *canonical.Call, writable bool) uint32 {
	e := &end{of: s, writable: writable}
	e.index = c.Add(e, 0)
	return e.index
}

// kind is which end of what a built-in is for.
type kind struct {
	element  Element
	future   bool
	writable bool
}

// get returns an end, which has to be of this kind.
func (k kind) get(c *canonical.Call, handle uint64) *end {
	e := canonical.Get[*end](c, handle)
	if e.of.future != k.future || e.writable != k.writable || e.of.element != k.element {
		canonical.Trapf("handle index %d used with the wrong type", e.index)
	}
	return e
}

// move is the built-in that reads or writes.
func (k kind) move(async bool) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		e := k.get(c, p[0])
		length := uint32(1)
		if !k.future {
			length = uint32(p[2])
		}
		switch {
		case e.state != idle:
			canonical.Trapf("the end %d of a stream or future is in use, or done", e.index)
		case e.set != nil && !async:
			canonical.Trapf("the end %d of a stream or future is in a waitable set", e.index)
		case length > maxElements:
			canonical.Trapf("%d elements are more than %d", length, maxElements)
		}
		at := uint32(p[1])
		if size := uint64(length) * uint64(k.element.Size); size > 0 {
			if at%k.element.Align != 0 || size > math.MaxUint32 {
				canonical.Trapf("pointer %#x of %d elements is not aligned to %d", at, length, k.element.Align)
			}
			c.View(at, size)
		}
		e.state = copying
		e.transfer = &transfer{end: e, call: *c, at: at, length: length}
		e.of.start(e.transfer)
		switch {
		case e.pending != nil:
		case async:
			p[0] = blocked
			return nil
		default:
			if err := e.await(c); err != nil {
				return err
			}
		}
		p[0] = uint64(e.tell().payload)
		return nil
	}
}

// await waits until the end has something to tell.
func (e *end) await(c *canonical.Call) error {
	e.blocked = true
	defer func() { e.blocked = false }()
	return e.of.tasks.until(c, func() bool { return e.pending != nil })
}

// start starts a copy.
func (s *shared) start(c *transfer) {
	switch {
	case s.dropped:
		c.tells(copyDropped)
	case s.promise != nil:
		s.pending, s.tasks.asked = c, s.promise
		s.promise.tell()
	case s.receiver != nil:
		s.lift(c)
	case s.source != nil || s.sink != nil:
		s.pending = c
		if !s.step() {
			s.tasks.add(s)
		}
	case s.pending == nil:
		s.pending = c
	default:
		s.meet(c)
	}
}

// meet copies between two ends of the guest.
func (s *shared) meet(c *transfer) {
	other := s.pending
	if !s.element.Number {
		canonical.Trapf("an instance passes values that are no numbers to itself")
	}
	switch {
	case other.left() > 0:
		if n := min(c.left(), other.left()); n > 0 {
			from, to := other, c
			if c.end.writable {
				from, to = c, other
			}
			size := uint64(n) * uint64(s.element.Size)
			if size > 0 {
				copy(c.call.View(to.place(), size), c.call.View(from.place(), size))
			}
			c.progress += n
			other.progress += n
			s.partly(other)
		}
		c.tells(copyCompleted)
	case c.end.writable && c.length == 0 && other.length == 0:
		c.tells(copyCompleted)
	default:
		s.ended(copyCompleted)
		s.pending = c
	}
}

// partly has the other end tell what was copied. Until it is told, more may be.
func (s *shared) partly(c *transfer) {
	c.tells(copyCompleted)
	told := c.end.pending
	c.end.pending = func() event {
		if s.pending == c {
			s.pending = nil
		}
		return told()
	}
	if s.future {
		s.pending = nil
	}
}

// cancel is the built-in that cancels a copy. It never has to wait.
func (k kind) cancel(async bool) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		e := k.get(c, p[0])
		switch {
		case e.state != copying || e.blocked:
			canonical.Trapf("the end %d of a stream or future has no copy to cancel", e.index)
		case e.set != nil && !async:
			canonical.Trapf("the end %d of a stream or future is in a waitable set", e.index)
		}
		if e.pending == nil {
			pending := e.transfer
			e.of.cease()
			pending.tells(copyCancelled)
		}
		p[0] = uint64(e.tell().payload)
		return nil
	}
}

// drop is the built-in that drops an end.
func (k kind) drop(c *canonical.Call, p []uint64, _ uint32) error {
	e := k.get(c, p[0])
	switch {
	case e.state == copying:
		canonical.Trapf("the end %d of a stream or future is dropped while it is in use", e.index)
	case e.of.future && e.writable && e.state != done:
		canonical.Trapf("the writable end %d of a future is dropped before it has written", e.index)
	}
	return canonical.Drop[*end](c, p, 0)
}
