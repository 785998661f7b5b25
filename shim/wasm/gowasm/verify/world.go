package verify

import (
	"errors"
	"slices"
)

// world is what both sides share on a way: memory, globals, and what the way has shown.
type world struct {
	version int64        // of memory
	grown   int64        // how often it grew, or may have
	words   table[int32] // the i64 at a place of the frame, counted from the first stack pointer
	globals table[int32]
	truths  table[bool] // what decisions have shown: a value is other than 0
	framed  bool        // the frame lies in memory
	isNil   bool        // the last decision was that a pointer is nil

	did  table[span] // what was touched before, by the root of its addresses
	does table[span] // and now
	owed []reach     // what is touched now and was not before, so far
	due  []reach     // what was touched before since the last event and is not now, so far
}

// span is from the lowest byte to the end of the highest, less the root.
type span struct{ low, high int64 }

// reach is one access.
type reach struct {
	root int32
	span
}

// table is a small map.
type table[V any] []row[V]

type row[V any] struct {
	key   int64
	value V
}

func (t table[V]) get(key int64) (v V, ok bool) {
	for i := range t {
		if t[i].key == key {
			return t[i].value, true
		}
	}
	return v, false
}

func (t *table[V]) set(key int64, v V) {
	for i := range *t {
		if (*t)[i].key == key {
			(*t)[i].value = v
			return
		}
	}
	*t = append(*t, row[V]{key, v})
}

func (x *world) clone() *world {
	c := *x
	c.words, c.globals, c.truths = slices.Clone(x.words), slices.Clone(x.globals), slices.Clone(x.truths)
	c.did, c.does = slices.Clone(x.did), slices.Clone(x.does)
	c.owed, c.due = slices.Clone(x.owed), slices.Clone(x.due)
	return &c
}

// covers says whether an access is within what is touched anyway. What is not below its root begins in memory if it ends there.
func covers(spans table[span], r reach) bool {
	s, ok := spans.get(int64(r.root))
	return ok && s.high >= r.high && (r.low >= 0 || s.low <= r.low)
}

func widen(spans *table[span], r reach) {
	s, ok := spans.get(int64(r.root))
	if !ok {
		s = r.span
	}
	spans.set(int64(r.root), span{min(s.low, r.low), max(s.high, r.high)})
}

// global is what a global holds.
func (w *walk) global(x *world, index int64) int32 {
	id, ok := x.globals.get(index)
	if !ok {
		id = w.v.fresh(opSymbol)
		x.globals.set(index, id)
	}
	return id
}

// touch is a load or store. ours says whether it was there before.
func (w *walk) touch(s *side, x *world, i *instr, ours bool) (*event, error) {
	store := i.op >= opStoreFirst
	var what int32
	if store {
		what = s.pop()
	}
	p := w.v.place(s.pop(), i.value)
	r := reach{p.root, span{p.at, p.at + sizes[i.op-opLoadFirst]}}
	if err := w.account(x, r, ours); err != nil {
		return nil, err
	}
	if store {
		return &event{op: i.op, value: p.at, args: [5]int32{p.root, what}}, nil
	}
	if p.root == w.first && i.op == opI64Load {
		id, ok := x.words.get(p.at)
		if !ok {
			id = w.v.number(value{op: i.op, a: p.root, b: int32(x.version), imm: p.at})
			x.words.set(p.at, id)
		}
		s.push(id)
		return nil, nil
	}
	s.push(w.v.number(value{op: i.op, a: p.root, b: int32(x.version), imm: p.at}))
	return nil, nil
}

// account notes what is touched, and what one side owes the other for it.
func (w *walk) account(x *world, r reach, ours bool) error {
	if r.root == w.first && ours {
		w.used = w.used.with(r.span)
	}
	if r.root == w.first && x.framed {
		if !ours {
			w.uses = w.uses.with(r.span)
		}
		return nil
	}
	if ours {
		widen(&x.did, r)
		x.owed = slices.DeleteFunc(x.owed, func(o reach) bool { return covers(x.did, o) })
		if !covers(x.does, r) {
			x.due = append(x.due, r)
		}
		return nil
	}
	widen(&x.does, r)
	if !covers(x.did, r) {
		if x.owed = append(x.owed, r); len(x.owed) > maxOwed {
			return errors.New("too many loads that were not there before")
		}
	}
	return nil
}

// maxOwed bounds what is kept of loads that are not yet paid.
const maxOwed = 1000

func (s *span) with(other span) *span {
	if s == nil {
		return &other
	}
	return &span{min(s.low, other.low), max(s.high, other.high)}
}

// paid says whether all that was touched before is touched now too.
func (x *world) paid() bool {
	for _, r := range x.due {
		if !covers(x.does, r) {
			return false
		}
	}
	x.due = x.due[:0]
	return true
}

// maxNear is how far behind a nil pointer memory is certain to be there.
const maxNear = 64 << 10

// settle says whether an event may come while loads are owed.
func (w *walk) settle(x *world, e *event) bool {
	if len(x.owed) == 0 {
		return true
	}
	switch e.op {
	case opGlobalSet, eventDecision, eventLocal, eventTrap, opMemoryCopy, opMemoryFill:
		return true // memory and globals of a guest that has trapped are gone
	case opUnreachable:
		return true
	case opCall:
		if !x.isNil || !w.module.never(e.value) {
			return false
		}
		for _, r := range x.owed {
			if r.high > maxNear {
				return false
			}
		}
		x.owed = nil
		return true
	}
	return e.op >= opStoreFirst && e.op <= opStoreLast
}

// apply does what an event does to what both sides share, and returns what it gives.
func (w *walk) apply(x *world, e *event) (gives []int32) {
	for range e.gives {
		gives = append(gives, w.v.fresh(opSymbol))
	}
	switch {
	case e.op >= opStoreFirst && e.op <= opStoreLast:
		x.version++
		w.wrote(x, place{e.args[0], e.value}, sizes[e.op-opLoadFirst])
	case e.op == opGlobalSet:
		x.globals.set(e.value, e.args[0])
	case e.op == opMemoryGrow:
		x.version++
		x.grown++
	case e.op == opMemoryCopy || e.op == opMemoryFill:
		x.version++
		x.words = x.words[:0]
	case e.op == opCall || e.op == opCallOf:
		x.version++
		x.grown++
		x.words = x.words[:0]
		w.called(x, e)
		if e.op == opCall && e.gives == 1 && w.module.never(e.value) {
			x.truths.set(int64(gives[0]), true)
		}
	}
	return gives
}

// wrote forgets the words of the frame that a store may have changed.
func (w *walk) wrote(x *world, p place, size int64) {
	switch {
	case p.root == w.first:
		x.words = slices.DeleteFunc(x.words, func(r row[int32]) bool { return r.key < p.at+size && p.at < r.key+8 })
	case w.given || w.v.stack[p.root]:
		x.words = x.words[:0]
	}
}

// called is what globals are after a call.
func (w *walk) called(x *world, e *event) {
	pointer := w.global(x, 0)
	goes := e.op == opCall && returnsAsGo(w.module.functions[e.value]) && e.value >= int64(w.module.imports) ||
		e.op == opCallOf && returnsAsGo(w.module.types[e.value])
	if e.op == opCall && !goes && w.module.quiet(e.value) {
		return
	}
	x.globals = x.globals[:0]
	switch {
	case e.op == opCall && !goes && w.module.level(e.value):
		x.globals.set(0, pointer)
		return
	case goes:
		x.globals.set(0, w.v.plus(pointer, 8))
		return
	}
	id := w.v.fresh(opSymbol)
	w.v.stack[id] = true
	x.globals.set(0, id)
}
