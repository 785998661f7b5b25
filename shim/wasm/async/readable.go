package async

import (
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
)

// Readable is a readable end of a stream or future that the host has and nobody reads yet: the
// guest has given it away, or the host has made it. It is read, given to the guest or closed, once.
type Readable struct{ of *shared }

// TakeStream takes the readable end of a stream of bytes from the guest.
func TakeStream(c *canonical.Call, handle uint64) *Readable {
	return hold(take(c, handle, kind{element: Byte}))
}

// TakeFuture takes the readable end of a future from the guest.
func TakeFuture(c *canonical.Call, handle uint64, element Element) *Readable {
	return hold(take(c, handle, kind{element: element, future: true}))
}

// Stream is a stream of bytes of the host's.
func (t *Tasks) Stream(from Bytes) *Readable {
	return hold(&shared{tasks: t, element: Byte, source: from})
}

// Future is the readable end of the promise.
func (t *Tasks) Future(p *Promise, element Element) *Readable {
	p.of = &shared{tasks: t, element: element, future: true, promise: p}
	return hold(p.of)
}

// hold makes the Readable of an end, which is closed with the Tasks if nobody does it before.
//
//go:noinline
func hold(s *shared) *Readable {
	if s.tasks.held == nil {
		s.tasks.held = map[*shared]struct{}{}
	}
	s.tasks.held[s] = struct{}{}
	return &Readable{s}
}

// used is the end of the Readable, which is somebody's now.
func (r *Readable) used() { delete(r.of.tasks.held, r.of) }

// Give gives it to the guest.
func (r *Readable) Give(c *canonical.Call) uint32 {
	handle := r.of.give(c, false)
	r.used()
	return handle
}

// Own says whether the host has made it, and not the guest.
func (r *Readable) Own() bool { return r.of.source != nil || r.of.promise != nil }

// Close tells who writes that nobody reads.
func (r *Readable) Close() {
	r.used()
	r.of.drop()
}

// Drain has the sink read a stream.
func (r *Readable) Drain(to Sink) {
	s := r.of
	switch {
	case s.source != nil: // it was the host's own
		s.tasks.splice(s.source, to)
	case s.dropped:
		to.Close()
	default:
		s.sink = to
		if s.pending != nil && !s.step() {
			s.tasks.add(s)
		}
	}
	r.used()
}

// maxAwaited bounds how many promises of an instance the host itself waits for at a time. They have
// no handle, and a guest may have one keep the next.
const maxAwaited = 1000

// receiver is the host as the reader of a future.
type receiver struct {
	lift func(c *canonical.Call, at uint32) any
	then func(value any, ok bool)
}

// Receive has the host read a future. then gets the value: of one that the guest writes, what lift
// makes of it in memory; of a promise, that of Keep. It gets false where there will be none.
func (r *Readable) Receive(lift func(c *canonical.Call, at uint32) any, then func(value any, ok bool)) {
	s := r.of
	if s.promise != nil {
		if s.tasks.awaited == maxAwaited {
			canonical.Trapf("more than %d futures from the host to the host", maxAwaited)
		}
		s.tasks.awaited++
	}
	s.receiver = &receiver{lift, then}
	switch {
	case s.tasks.closed: // the guest's memory is not read any more
		s.forget()
	case s.promise != nil:
		s.promise.tell()
	case s.dropped:
		s.received(nil, false)
	case s.pending != nil:
		s.lift(s.pending)
		s.pending = nil
	}
	r.used()
}

// lift has the host read what the guest writes into a future.
func (s *shared) lift(c *transfer) {
	value := s.receiver.lift(&c.call, c.at)
	c.progress = 1
	c.tells(copyCompleted)
	s.received(value, true)
}

// forget ends a future of which there is no more news: the host's reader gets no value.
func (s *shared) forget() {
	if s.receiver != nil {
		s.received(nil, false)
	}
	s.drop()
}

// received tells the host what it has read.
func (s *shared) received(value any, ok bool) {
	then := s.receiver.then
	s.receiver = nil
	if s.promise != nil {
		s.tasks.awaited--
	}
	then(value, ok)
}
