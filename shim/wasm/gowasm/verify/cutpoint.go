package verify

import (
	"errors"
	"slices"
)

// cutpointKey is where both sides are at a cutpoint.
type cutpointKey struct{ old, new int }

// cutpoint is a place where paths join, with the state that holds on every path to it. On the old
// side local 0 may be known, and the stack pointer relative to its first value; all other locals
// and the operand stack are symbols.
type cutpoint struct {
	key           cutpointKey
	place         fact // local 0
	pointer       fact // local 1
	global        fact // global 0
	height        int
	frameInMemory bool
	locals        []relation // what is known of the new side's locals 0 and 1, and of those that only it has
	ready         bool
}

// fact is a number that may be known.
type fact struct {
	known bool
	is    int64
}

func (f *fact) meet(o fact) bool {
	if !f.known || f.known && o.known && f.is == o.is {
		return false
	}
	*f = fact{}
	return true
}

// relation is what is known of a local of the new side.
type relation struct {
	local   int
	same    bool    // it equals the old side's local of that number
	pointer fact    // it is the first stack pointer plus a number
	above   fact    // it is the old side's local 1 plus a number
	place   fact    // it is a number
	wraps   []int   // it is the low half of each of these locals of the old side
	words   []int64 // it is the low half of each of these words of the frame
}

func (r *relation) meet(o relation) bool {
	changed := r.same && !o.same
	r.same = r.same && o.same
	changed = r.pointer.meet(o.pointer) || changed
	changed = r.above.meet(o.above) || changed
	changed = r.place.meet(o.place) || changed
	n, m := len(r.wraps), len(r.words)
	r.wraps = slices.DeleteFunc(r.wraps, func(j int) bool { return !slices.Contains(o.wraps, j) })
	r.words = slices.DeleteFunc(r.words, func(at int64) bool { return !slices.Contains(o.words, at) })
	return changed || len(r.wraps) != n || len(r.words) != m
}

func (r *relation) isKnown() bool {
	return r.same || r.pointer.known || r.above.known || r.place.known || len(r.wraps)+len(r.words) > 0
}

// meet keeps what both know of a local. Both are ordered by local.
func (c *cutpoint) meet(others []relation) (changed bool) {
	kept := c.locals[:0]
	for _, r := range c.locals {
		for len(others) > 0 && others[0].local < r.local {
			others = others[1:]
		}
		if len(others) == 0 || others[0].local != r.local {
			changed = true
			continue
		}
		changed = r.meet(others[0]) || changed
		if r.isKnown() {
			kept = append(kept, r)
		}
	}
	c.locals = kept
	return changed
}

// reachCutpoint ends a path at a cutpoint: a place where paths of the old side join.
func (w *proof) reachCutpoint(y path) error {
	if err := w.catchUp(y); err != nil {
		return err
	}
	if !y.x.complete() {
		return errMissing
	}
	if len(y.x.extra) > 0 {
		return errExtra
	}
	for i := 2; i < len(y.old.locals); i++ {
		if y.old.locals[i] != y.new.locals[i] {
			return errDiffer
		}
	}
	if !slices.Equal(y.old.stack, y.new.stack) {
		return errors.New("the stacks differ")
	}
	now := w.cutpoint(y)
	c, ok := w.cutpoints[now.key]
	if !ok {
		now.ready = true
		w.cutpoints[now.key] = now
		w.ready = append(w.ready, now)
		return nil
	}
	if c.height != now.height {
		return errShape
	}
	changed := c.place.meet(now.place)
	changed = c.pointer.meet(now.pointer) || changed
	changed = c.global.meet(now.global) || changed
	if c.frameInMemory && !now.frameInMemory {
		c.frameInMemory, changed = false, true
	}
	changed = c.meet(now.locals) || changed
	if changed && !c.ready {
		c.ready = true
		w.ready = append(w.ready, c)
	}
	return nil
}

// offsetOf returns how far a value is above the first stack pointer.
func (w *proof) offsetOf(id int32) fact {
	if id == w.first {
		return fact{known: true}
	}
	n := w.v.all[id]
	return fact{known: n.op == opOffset && n.a == w.first, is: n.imm}
}

// above returns how far a value is above another, if both are relative to one stack pointer.
func (w *proof) above(id, other int32) fact {
	a, b := w.v.place(id, 0), w.v.place(other, 0)
	return fact{known: a.root == b.root && w.v.stack[a.root], is: a.at - b.at}
}

func (w *proof) numberOf(id int32) fact {
	n, ok := w.v.isConstant(id)
	return fact{ok, n}
}

// cutpoint returns the state at the end of a path.
func (w *proof) cutpoint(y path) *cutpoint {
	c := &cutpoint{key: cutpointKey{y.old.pc, y.new.pc}, height: len(y.old.stack), frameInMemory: y.x.frameInMemory, global: w.offsetOf(w.global(y.x, 0))}
	if len(y.old.locals) > 0 {
		c.place = w.numberOf(y.old.locals[0])
	}
	if len(y.old.locals) > 1 {
		c.pointer = w.offsetOf(y.old.locals[1])
	}
	lowHalves := w.lowHalves(y)
	for i, id := range y.new.locals {
		if i > 1 && i < len(y.old.locals) || w.v.all[id].op == opPoison {
			continue
		}
		r := relation{local: i, same: i < len(y.old.locals) && y.old.locals[i] == id, pointer: w.offsetOf(id), place: w.numberOf(id)}
		if len(y.old.locals) > 1 {
			r.above = w.above(id, y.old.locals[1])
		}
		if i >= len(y.old.locals) {
			r.place = fact{} // a new local never holds a number
			for _, h := range lowHalves {
				switch {
				case h.id != id:
				case h.word:
					r.words = append(r.words, h.of)
				default:
					r.wraps = append(r.wraps, int(h.of))
				}
			}
		}
		if r.isKnown() {
			c.locals = append(c.locals, r)
		}
	}
	w.steps -= 10 + 4*len(c.locals) + len(lowHalves)
	return c
}

// lowHalf is the low half of a local of the old side, or of a word of the frame.
type lowHalf struct {
	id   int32
	of   int64
	word bool
}

// lowHalves returns those that a new local may hold.
func (w *proof) lowHalves(y path) (all []lowHalf) {
	if len(y.new.locals) == len(y.old.locals) {
		return nil
	}
	for j, id := range y.old.locals {
		if w.before.locals[j] == typeI64 {
			all = append(all, lowHalf{id: w.v.unary(opWrap, id), of: int64(j)})
		}
	}
	for _, r := range y.x.words {
		all = append(all, lowHalf{id: w.v.unary(opWrap, r.value), of: r.key, word: true})
	}
	return all
}

// enter starts a path at a cutpoint.
func (w *proof) enter(c *cutpoint) {
	w.clear()
	old, now, x := &side{f: w.before, pc: c.key.old}, &side{f: w.after, pc: c.key.new}, &state{frameInMemory: c.frameInMemory}
	for j := range w.before.locals {
		id := w.v.fresh(opSymbol)
		switch {
		case j == 0 && c.place.known:
			id = w.v.constant(opI32Const, c.place.is)
		case j == 1 && c.pointer.known:
			id = w.v.plus(w.first, c.pointer.is)
		case j == 1:
			w.v.stack[id] = true
		}
		old.locals = append(old.locals, id)
	}
	if c.global.known {
		x.globals.set(0, w.v.plus(w.first, c.global.is))
	} else {
		id := w.v.fresh(opSymbol)
		w.v.stack[id] = true
		x.globals.set(0, id)
	}
	for range c.height {
		id := w.v.fresh(opSymbol)
		old.push(id)
		now.push(id)
	}
	for i := range w.after.locals {
		if i > 1 && i < len(old.locals) {
			now.locals = append(now.locals, old.locals[i])
			continue
		}
		now.locals = append(now.locals, w.v.fresh(opPoison))
	}
	for _, r := range c.locals {
		now.locals[r.local] = w.localAt(r, old, x)
	}
	w.steps -= len(now.locals) / 8
	w.paths = append(w.paths, path{old: old, new: now, x: x})
}

// localAt returns the value of a local of the new side at the start of a path.
func (w *proof) localAt(r relation, old *side, x *state) int32 {
	switch {
	case r.same:
		return old.locals[r.local]
	case r.pointer.known:
		return w.v.plus(w.first, r.pointer.is)
	case r.above.known:
		return w.v.plus(old.locals[1], r.above.is)
	case r.place.known:
		return w.v.constant(opI32Const, r.place.is)
	}
	var lowHalves []int32
	for _, j := range r.wraps {
		lowHalves = append(lowHalves, w.v.unary(opWrap, old.locals[j]))
	}
	for _, at := range r.words {
		word, ok := x.words.get(at)
		if !ok {
			word = w.v.fresh(opSymbol)
			x.words.set(at, word)
		}
		lowHalves = append(lowHalves, w.v.unary(opWrap, word))
	}
	id := lowHalves[0]
	for _, lowHalf := range lowHalves { // a symbol among them equals another local, and so this one too
		if w.v.all[lowHalf].op == opSymbol {
			id = lowHalf
		}
	}
	for _, lowHalf := range lowHalves {
		if lowHalf != id {
			w.v.alias[lowHalf] = id
		}
	}
	return id
}

// catchUp runs the new side, which has seen the same events, over what has no effect: constructs,
// branches, and statements that set locals of its own without a memory access.
func (w *proof) catchUp(y path) error {
	s, height := y.new, len(y.old.stack)
	for w.caught++; s.pc < len(s.f.code) && w.seen[s.pc] != w.caught; {
		w.seen[s.pc] = w.caught
		end := s.pc + 1
		switch i := &s.f.code[s.pc]; {
		case len(s.stack) != height:
		case i.op <= opLoop || i.op == opEnd || i.op == opElse || i.op == opBr:
			if i.op == opUnreachable {
				return nil
			}
		case i.op == opLocalGet && s.f.code[end].op == opBrTable:
			if _, known := w.v.isConstant(s.locals[i.value]); !known {
				return nil
			}
			end++
		default:
			if end = w.statement(s.f, s.pc); end < 0 {
				return nil
			}
		}
		for next := s.pc; next < end; next++ { // a statement is straight-line code
			if w.steps--; w.steps < 0 {
				return errSteps
			}
			if e, err := w.step(s, y.x, false); e != nil || err != nil {
				return errors.Join(err, errDiffer)
			}
		}
	}
	return nil
}

// statement returns the end of a statement that sets local 0 or a local that only the new side
// has, without a memory access; -1 = none starts here.
func (w *proof) statement(f *function, pc int) int {
	height := 0
	for ; pc < len(f.code); pc++ {
		switch i := &f.code[pc]; i.op {
		case opLocalGet, opI32Const, opGlobalGet:
			height++
		case opI32Add, opI32Sub:
			height--
		case opWrap:
		case opLocalSet, opLocalTee:
			if i.value > 1 && i.value < int64(len(w.before.locals)) {
				return -1
			}
			if i.op == opLocalSet {
				height--
			}
		default:
			return -1
		}
		if height == 0 {
			return pc + 1
		}
		if height < 0 {
			return -1
		}
	}
	return -1
}
