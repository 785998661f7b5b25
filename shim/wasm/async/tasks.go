package async

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasi"
)

// Tasks is what is asynchronous of one instance. It implements canonical.Tasks. It runs on the
// thread of the instance.
type Tasks struct {
	// Returned, if it is set, is called with the flat result of a task when it returns.
	Returned func(c *canonical.Call, flat []uint64)

	system   *wasi.System
	work     []work
	subs     []wasi.Subscription
	context  [2]uint64
	pressure uint32
	splices  int                  // in work
	held     map[*shared]struct{} // of Readables: a trap may take them from who has them
	awaited  int                  // promises that the host reads
	asked    *Promise             // of the future that the guest has read last
	closed   bool                 // the guest is told of nothing more
	result   []uint64             // of the task, nil until it has returned
}

// New makes the Tasks of an instance, which sleeps in this System.
func New(system *wasi.System) *Tasks { return &Tasks{system: system} }

// Close implements canonical.Tasks.
func (t *Tasks) Close() {
	t.closed = true
	all := t.work
	t.work = nil
	for _, w := range all {
		switch w := w.(type) {
		case *running:
			w.cancel()
		case *spliced:
			w.close()
		case *due:
			w.of.of.forget()
		}
	}
	// Futures first: a stream whose trailers are still wanted would be read to its end.
	for _, futures := range []bool{true, false} {
		for s := range t.held {
			if s.future == futures {
				s.drop()
			}
		}
	}
}

// of is the Tasks of the instance that a call is one of.
func of(c *canonical.Call) *Tasks { return Of(c) }

// Of is the Tasks of the instance that a call is one of.
//
//go:noinline
func Of(c *canonical.Call) *Tasks {
	t, ok := c.Instance.Tasks.(*Tasks)
	if !ok {
		canonical.Trapf("the instance has no asynchronous functions")
	}
	return t
}

// Work is what continues while the guest waits.
type Work interface {
	// WaitsFor is what it waits for, false if it can continue at once.
	WaitsFor() (wasi.Subscription, bool)
}

// work is Work that this package continues.
type work interface {
	Work
	step() (ended bool)
}

func (t *Tasks) add(w work) { t.work = append(t.work, w) }

func (t *Tasks) remove(w work) {
	if at := slices.Index(t.work, w); at >= 0 {
		t.work = slices.Delete(t.work, at, at+1)
	}
}

// progress continues what can be, of all work or of this. If wait is set and nothing can, it sleeps
// until something does.
func (t *Tasks) progress(wait bool, only func(work) bool) error {
	all := slices.Clone(t.work)
	if only != nil {
		all = slices.DeleteFunc(all, func(w work) bool { return !only(w) })
	}
	if len(all) == 0 {
		if wait {
			canonical.Trapf("deadlock: it waits for what nothing will tell%s", t.lacks())
		}
		return nil
	}
	t.subs = t.subs[:0]
	for _, w := range all {
		s, waits := w.WaitsFor()
		if !waits {
			s = wasi.Subscription{} // a time that is over
		}
		t.subs = append(t.subs, s)
	}
	if !wait {
		t.subs = append(t.subs, wasi.Subscription{})
	}
	if _, err := t.system.Poll(t.subs); err != nil {
		if err == unix.ECANCELED {
			return nil // the instance was ended: its call says so
		}
		return fmt.Errorf("wait for events: %w", err)
	}
	for n, w := range all {
		if t.subs[n].Ready && slices.Contains(t.work, w) && w.step() { // one may end another
			t.remove(w)
		}
	}
	return nil
}

// lacks is what the guest has not done for the future that it has read last, "" for nothing.
func (t *Tasks) lacks() string {
	if p := t.asked; p != nil && !p.kept && p.Needs != "" {
		return ": " + p.Needs
	}
	return ""
}

// until continues until something is the case.
func (t *Tasks) until(c *canonical.Call, is func() bool) error {
	for !is() {
		if err := c.Instance.Ended(); err != nil {
			panic(err)
		}
		if err := t.progress(true, nil); err != nil {
			return err
		}
	}
	return nil
}

// wait returns the next event of a set.
func (t *Tasks) wait(c *canonical.Call, s *waitableSet) (event, error) {
	s.waits++
	defer func() { s.waits-- }()
	if err := t.until(c, s.ready); err != nil {
		return event{}, err
	}
	return s.tell(), nil
}

// What a callback returns: in its lower 4 bits the code, above them a set.
const (
	codeYield = 1
	codeWait  = 2

	codeBits = 4
)

// next is the built-in by which a lowered component waits for the event that its callback is called
// with: its code in the uppermost bits, then 28 bits of the index, then the payload.
func next(c *canonical.Call, p []uint64, _ uint32) error {
	t, packed := of(c), uint32(p[0])
	var e event
	var err error
	switch packed & (1<<codeBits - 1) {
	case codeYield:
		err = t.progress(false, nil)
	case codeWait:
		e, err = t.wait(c, canonical.Get[*waitableSet](c, uint64(packed>>codeBits)))
	default:
		canonical.Trapf("a callback returned the code %d, which is not known", packed&(1<<codeBits-1))
	}
	p[0] = uint64(e.code)<<60 | uint64(e.index)<<32 | uint64(e.payload)
	return err
}

// finish is the built-in by which a lowered component ends its task, whose result is one flat value
// or none.
func finish(c *canonical.Call, p []uint64, _ uint32) error {
	t := of(c)
	if t.result == nil {
		canonical.Trapf("the task ends and has not returned")
	}
	p[0] = 0
	if len(t.result) > 0 {
		p[0] = t.result[0]
	}
	t.result, t.context = nil, [2]uint64{}
	return nil
}

// taskReturn is the built-in task.return of this many flat values.
func taskReturn(n int) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		t := of(c)
		if t.result != nil {
			canonical.Trapf("the task returns a second time")
		}
		t.result = append([]uint64{}, p[:n]...)
		if t.Returned != nil {
			t.Returned(c, t.result)
		}
		return nil
	}
}

// taskCancel is for a task that was asked to cancel itself, which no host does here.
func taskCancel(*canonical.Call, []uint64, uint32) error {
	canonical.Trapf("the task was not asked to be cancelled")
	return nil
}

func contextGet(slot uint32) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		p[0] = of(c).context[slot]
		return nil
	}
}

func contextSet(slot uint32) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, p []uint64, _ uint32) error {
		of(c).context[slot] = p[0]
		return nil
	}
}

// backpressure counts how often the guest has asked for no further tasks. It gets none meanwhile in
// any case.
func backpressure(by int) func(*canonical.Call, []uint64, uint32) error {
	return func(c *canonical.Call, _ []uint64, _ uint32) error {
		t := of(c)
		n := int(t.pressure) + by
		if n < 0 || n > 1<<16-1 {
			canonical.Trapf("backpressure of %d", n)
		}
		t.pressure = uint32(n)
		return nil
	}
}

// yield lets what can continue do so. No host cancels the task meanwhile.
func yield(c *canonical.Call, p []uint64, _ uint32) error {
	err := of(c).progress(false, nil)
	p[0] = 0
	return err
}
