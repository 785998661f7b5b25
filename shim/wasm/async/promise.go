package async

import (
	"slices"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// Promise is the writable end of a future that the guest reads, or the host itself. Its zero value
// is not kept yet.
type Promise struct {
	// Dropped, if it is set, is called once when nobody reads the future any more, read or not.
	Dropped func()

	// Needs says what the guest has to do first, for the trap of one that waits instead.
	Needs string

	// Arrives says that what keeps it comes in any case: if the host reads the future, Settle waits.
	Arrives bool

	// Held is what it may hold of the host's memory, which is counted with the guest's end.
	Held int

	kept  bool
	value any // for the host
	store func(c *canonical.Call, at uint32)
	of    *shared // nil before there is a future
	due   *due    // that keeps it, nil for none
}

// Give gives the guest the readable end.
func (p *Promise) Give(c *canonical.Call, element Element) uint32 {
	return of(c).Future(p, element).Give(c)
}

// Keep has the future have a value, which store writes where the guest wants it. The first one
// counts.
func (p *Promise) Keep(store func(c *canonical.Call, at uint32)) { p.KeepValue(nil, store) }

// KeepValue is Keep of what the host may read too: see Readable.Receive.
func (p *Promise) KeepValue(value any, store func(c *canonical.Call, at uint32)) {
	if p.kept {
		return
	}
	p.kept, p.value, p.store = true, value, store
	if p.of != nil {
		p.tell()
	}
}

// tell tells who waits.
func (p *Promise) tell() {
	s := p.of
	switch c := s.pending; {
	case !p.kept || s.tasks.closed:
	case s.receiver != nil:
		s.received(p.value, true)
		s.drop()
	case c != nil:
		p.store(&c.call, c.at)
		c.progress = 1
		s.ended(copyCompleted)
	}
}

// drop is the end of the future.
func (p *Promise) drop() {
	if p.due != nil {
		p.of.tasks.remove(p.due)
		p.due = nil
	}
	if p.Dropped != nil {
		p.Dropped()
	}
}

// due is what a promise waits for.
type due struct {
	Work
	of   *Promise
	keep func()
}

func (d *due) step() bool {
	d.of.due = nil
	d.keep()
	return true
}

// KeepWhen has keep called, which keeps the promise, when what it waits for is the case, unless
// nobody reads the future any more, or the instance ends.
func (p *Promise) KeepWhen(w Work, keep func()) {
	if p.of.tasks.closed {
		p.of.forget()
	}
	if p.of.dropped {
		return
	}
	p.due = &due{Work: w, of: p, keep: keep}
	p.of.tasks.add(p.due)
}

// Happening is Work that waits for an event.
type Happening struct{ Event *wasi.Event }

// WaitsFor implements Work.
func (h Happening) WaitsFor() (wasi.Subscription, bool) {
	return wasi.Subscription{Event: h.Event}, true
}

// Settle continues, when a task has ended, what the host moves without the guest: from a stream of
// its own to another, and values of its own that it waits for.
func (t *Tasks) Settle(i *canonical.Instance) error {
	for slices.ContainsFunc(t.work, ownWork) {
		if err := i.Ended(); err != nil {
			return err
		}
		if err := t.progress(true, ownWork); err != nil {
			return err
		}
	}
	return nil
}

// ownWork says whether work needs no guest.
func ownWork(w work) bool {
	switch w := w.(type) {
	case *spliced:
		return true
	case *due:
		return w.of.Arrives && w.of.of.receiver != nil
	}
	return false
}
