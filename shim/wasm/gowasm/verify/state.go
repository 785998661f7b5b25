package verify

import (
	"errors"
	"slices"
)

// state is what both sides share on a path: memory, globals, and the conditions that are known.
type state struct {
	version       int64        // of memory
	grown         int64        // how often memory has grown, or may have
	words         table[int32] // i64 words of the frame, by offset from the first stack pointer
	globals       table[int32]
	conditions    table[bool] // values that decisions have shown to be 0, or not to be
	frameInMemory bool        // the frame is known to be in memory
	isNil         bool        // the last decision was that a pointer is nil

	oldSpans table[span] // what the old side has accessed, by the root of the address
	newSpans table[span] // what the new side has accessed
	extra    []access    // accesses of the new side that the old side has not made so far
	missing  []access    // accesses of the old side since the last event that the new side has not made so far
}

// span is from the lowest byte to the end of the highest, relative to the root.
type span struct{ low, high int64 }

// access is one load or store.
type access struct {
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

func (x *state) clone() *state {
	c := *x
	c.words, c.globals, c.conditions = slices.Clone(x.words), slices.Clone(x.globals), slices.Clone(x.conditions)
	c.oldSpans, c.newSpans = slices.Clone(x.oldSpans), slices.Clone(x.newSpans)
	c.extra, c.missing = slices.Clone(x.extra), slices.Clone(x.missing)
	return &c
}

// covers says whether an access is within what is accessed anyway. An access that is not below its
// root starts in memory if it ends there.
func covers(spans table[span], r access) bool {
	s, ok := spans.get(int64(r.root))
	return ok && s.high >= r.high && (r.low >= 0 || s.low <= r.low)
}

func widen(spans *table[span], r access) {
	s, ok := spans.get(int64(r.root))
	if !ok {
		s = r.span
	}
	spans.set(int64(r.root), span{min(s.low, r.low), max(s.high, r.high)})
}

// global returns the value of a global.
func (w *proof) global(x *state, index int64) int32 {
	id, ok := x.globals.get(index)
	if !ok {
		id = w.v.fresh(opSymbol)
		x.globals.set(index, id)
	}
	return id
}

// access executes a load or store. isOld says whether the side is the original.
func (w *proof) access(s *side, x *state, i *instr, isOld bool) (*event, error) {
	store := i.op >= opStoreFirst
	var what int32
	if store {
		what = s.pop()
	}
	p := w.v.place(s.pop(), i.value)
	r := access{p.root, span{p.at, p.at + sizes[i.op-opLoadFirst]}}
	if err := w.recordAccess(x, r, isOld); err != nil {
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

// recordAccess records an access, and compares it with those of the other side.
func (w *proof) recordAccess(x *state, r access, isOld bool) error {
	if r.root == w.first && isOld {
		w.oldFrame = w.oldFrame.with(r.span)
	}
	if r.root == w.first && x.frameInMemory {
		if !isOld {
			w.newFrame = w.newFrame.with(r.span)
		}
		return nil
	}
	if isOld {
		widen(&x.oldSpans, r)
		x.extra = slices.DeleteFunc(x.extra, func(o access) bool { return covers(x.oldSpans, o) })
		if !covers(x.newSpans, r) {
			x.missing = append(x.missing, r)
		}
		return nil
	}
	widen(&x.newSpans, r)
	if !covers(x.oldSpans, r) {
		if x.extra = append(x.extra, r); len(x.extra) > maxExtra {
			return errors.New("too many loads that were not there before")
		}
	}
	return nil
}

// maxExtra bounds the extra accesses of a path.
const maxExtra = 1000

func (s *span) with(other span) *span {
	if s == nil {
		return &other
	}
	return &span{min(s.low, other.low), max(s.high, other.high)}
}

// complete says whether the new side has accessed all that the old side has.
func (x *state) complete() bool {
	for _, r := range x.missing {
		if !covers(x.newSpans, r) {
			return false
		}
	}
	x.missing = x.missing[:0]
	return true
}

// maxNear is how far behind a nil pointer memory certainly exists.
const maxNear = 64 << 10

// allows says whether an event may come while the new side has extra accesses.
func (w *proof) allows(x *state, e *event) bool {
	if len(x.extra) == 0 {
		return true
	}
	switch e.op {
	case opGlobalSet, eventDecision, eventLocal, eventTrap, opMemoryCopy, opMemoryFill:
		return true // memory and globals of a guest that has trapped are not seen again
	case opUnreachable:
		return true
	case opCall:
		if !x.isNil || !w.module.neverReturnsZero(e.value) {
			return false
		}
		for _, r := range x.extra {
			if r.high > maxNear {
				return false
			}
		}
		x.extra = nil
		return true
	}
	return e.op >= opStoreFirst && e.op <= opStoreLast
}

// apply applies an event to what both sides share, and returns its results.
func (w *proof) apply(x *state, e *event) (gives []int32) {
	for range e.gives {
		gives = append(gives, w.v.fresh(opSymbol))
	}
	switch {
	case e.op >= opStoreFirst && e.op <= opStoreLast:
		x.version++
		w.forgetWords(x, place{e.args[0], e.value}, sizes[e.op-opLoadFirst])
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
		w.applyCall(x, e)
		if e.op == opCall && e.gives == 1 && w.module.neverReturnsZero(e.value) {
			x.conditions.set(int64(gives[0]), true)
		}
	}
	return gives
}

// forgetWords forgets the words of the frame that a store may have changed.
func (w *proof) forgetWords(x *state, p place, size int64) {
	switch {
	case p.root == w.first:
		x.words = slices.DeleteFunc(x.words, func(r row[int32]) bool { return r.key < p.at+size && p.at < r.key+8 })
	case w.escapes || w.fromStack(p.root):
		x.words = x.words[:0]
	}
}

// fromStack says whether an address is computed from a stack pointer, as that of an element of an
// array in the frame. It need not be right where the frame's address escapes.
func (w *proof) fromStack(id int32) bool {
	n := w.v.all[id]
	w.steps--
	switch {
	case w.steps < 0 || w.v.stack[id]:
		return true
	case n.op == opOffset || n.op == opExtend || n.op == opWrap:
		return w.fromStack(n.a)
	case n.op == opI64Add || n.op == opI32Add || n.op == opI32Sub:
		return w.fromStack(n.a) || w.fromStack(n.b)
	}
	return false
}

// applyCall sets the globals as they are after a call.
func (w *proof) applyCall(x *state, e *event) {
	pointer := w.global(x, 0)
	isGo := e.op == opCall && returnsAsGo(w.module.functions[e.value]) && e.value >= int64(w.module.imports) ||
		e.op == opCallOf && returnsAsGo(w.module.types[e.value])
	if e.op == opCall && !isGo && w.module.keepsGlobals(e.value) {
		return
	}
	x.globals = x.globals[:0]
	switch {
	case e.op == opCall && !isGo && w.module.keepsStackPointer(e.value):
		x.globals.set(0, pointer)
		return
	case isGo:
		x.globals.set(0, w.v.plus(pointer, 8))
		return
	}
	id := w.v.fresh(opSymbol)
	w.v.stack[id] = true
	x.globals.set(0, id)
}
