package async

import (
	"slices"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
)

// Codes of events.
const (
	eventNone uint32 = iota
	eventSubtask
	eventStreamRead
	eventStreamWrite
	eventFutureRead
	eventFutureWrite
)

// event is what a waitable tells of.
type event struct{ code, index, payload uint32 }

// waiter is a resource that is a waitable.
type waiter interface {
	canonical.Resource
	base() *waitable
}

// waitable is what every waitable has.
type waitable struct {
	index   uint32       // its handle
	set     *waitableSet // that it is in, nil for none
	pending func() event // what it has to tell, nil for nothing
	blocked bool         // a call waits for it
}

func (w *waitable) base() *waitable { return w }

// tell returns what it has to tell, which is then told.
func (w *waitable) tell() event {
	e := w.pending()
	w.pending = nil
	return e
}

// join puts it into a set, nil for none.
func (w *waitable) join(s *waitableSet) {
	if w.set != nil {
		w.set.leave(w)
	}
	if w.set = s; s != nil {
		s.members = append(s.members, w)
	}
}

// waitableSet is the resource waitable-set.
type waitableSet struct {
	members []*waitable
	waits   int // calls that wait for it
}

// Drop implements canonical.Resource.
func (s *waitableSet) Drop() {}

func (s *waitableSet) leave(w *waitable) {
	if at := slices.Index(s.members, w); at >= 0 {
		s.members = slices.Delete(s.members, at, at+1)
	}
}

// ready reports whether a member has something to tell.
func (s *waitableSet) ready() bool {
	return slices.ContainsFunc(s.members, func(w *waitable) bool { return w.pending != nil })
}

// tell returns what the member tells that has waited longest. It is the last one from then on, so
// that none is left out.
func (s *waitableSet) tell() event {
	for at, w := range s.members {
		if w.pending != nil {
			s.members = append(slices.Delete(s.members, at, at+1), w)
			return w.tell()
		}
	}
	return event{}
}

func setNew(c *canonical.Call, p []uint64, _ uint32) error {
	p[0] = uint64(c.Add(&waitableSet{}, 0))
	return nil
}

func setDrop(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*waitableSet](c, p[0])
	if len(s.members) > 0 || s.waits > 0 {
		canonical.Trapf("the waitable set %d is not empty, or waited for", uint32(p[0]))
	}
	return canonical.Drop[*waitableSet](c, p, 0)
}

func setWait(c *canonical.Call, p []uint64, _ uint32) error {
	e, err := of(c).wait(c, canonical.Get[*waitableSet](c, p[0]))
	if err != nil {
		return err
	}
	putEvent(c, p, e)
	return nil
}

func setPoll(c *canonical.Call, p []uint64, _ uint32) error {
	s := canonical.Get[*waitableSet](c, p[0])
	if !s.ready() {
		if err := of(c).progress(false, nil); err != nil {
			return err
		}
	}
	putEvent(c, p, s.tell())
	return nil
}

// putEvent returns an event, whose two numbers are written to memory.
func putEvent(c *canonical.Call, p []uint64, e event) {
	at := uint32(p[1])
	if at%4 != 0 {
		canonical.Trapf("pointer %#x of an event is not aligned to 4", at)
	}
	c.View(at, 8)
	c.Put32(at, e.index)
	c.Put32(at+4, e.payload)
	p[0] = uint64(e.code)
}

func join(c *canonical.Call, p []uint64, _ uint32) error {
	w := canonical.Get[waiter](c, p[0]).base()
	if uint32(p[1]) == 0 {
		w.join(nil)
		return nil
	}
	w.join(canonical.Get[*waitableSet](c, p[1]))
	return nil
}
