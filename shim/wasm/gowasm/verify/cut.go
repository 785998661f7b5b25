package verify

import (
	"errors"
	"slices"
)

// cutKey is where both sides are at a cut.
type cutKey struct{ old, new int }

// cut is what is true wherever a way arrives there. On the old side local 0 may be known, and the stack pointer by what it is more than at
// the beginning; all other locals and the stack are symbols.
type cut struct {
	key     cutKey
	place   fact // local 0
	pointer fact // local 1
	global  fact // global 0
	height  int
	framed  bool
	locals  []relation // of the new side: of local 0 and 1 and those of its own, what is known
	ready   bool
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

// relation is what a local of the new side is known to be.
type relation struct {
	local   int
	same    bool    // what the old side's local of that number is
	pointer fact    // the first stack pointer and so much
	above   fact    // what the old side's local 1 is, and so much
	place   fact    // a number
	wraps   []int   // the lower half of these locals of the old side
	words   []int64 // the lower half of these words of the frame
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

// meet keeps of what is known of locals what others know too. Both are in the order of the locals.
func (c *cut) meet(others []relation) (changed bool) {
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

// arrive ends a way where ways of the old side meet.
func (w *walk) arrive(y way) error {
	if err := w.catchUp(y); err != nil {
		return err
	}
	if !y.x.paid() {
		return errLess
	}
	if len(y.x.owed) > 0 {
		return errLoads
	}
	for i := 2; i < len(y.old.locals); i++ {
		if y.old.locals[i] != y.new.locals[i] {
			return errDiffer
		}
	}
	if !slices.Equal(y.old.stack, y.new.stack) {
		return errors.New("the stacks differ")
	}
	now := w.state(y)
	c, ok := w.cuts[now.key]
	if !ok {
		now.ready = true
		w.cuts[now.key] = now
		w.ready = append(w.ready, now)
		return nil
	}
	if c.height != now.height {
		return errShape
	}
	changed := c.place.meet(now.place)
	changed = c.pointer.meet(now.pointer) || changed
	changed = c.global.meet(now.global) || changed
	if c.framed && !now.framed {
		c.framed, changed = false, true
	}
	changed = c.meet(now.locals) || changed
	if changed && !c.ready {
		c.ready = true
		w.ready = append(w.ready, c)
	}
	return nil
}

// offsetOf is how far a value is above the first stack pointer.
func (w *walk) offsetOf(id int32) fact {
	if id == w.first {
		return fact{known: true}
	}
	n := w.v.all[id]
	return fact{known: n.op == opOffset && n.a == w.first, is: n.imm}
}

// above is how far a value is above another, if both count from one stack pointer.
func (w *walk) above(id, other int32) fact {
	a, b := w.v.place(id, 0), w.v.place(other, 0)
	return fact{known: a.root == b.root && w.v.stack[a.root], is: a.at - b.at}
}

func (w *walk) numberOf(id int32) fact {
	n, ok := w.v.isConstant(id)
	return fact{ok, n}
}

// state is what is true where a way has arrived.
func (w *walk) state(y way) *cut {
	c := &cut{key: cutKey{y.old.pc, y.new.pc}, height: len(y.old.stack), framed: y.x.framed, global: w.offsetOf(w.global(y.x, 0))}
	if len(y.old.locals) > 0 {
		c.place = w.numberOf(y.old.locals[0])
	}
	if len(y.old.locals) > 1 {
		c.pointer = w.offsetOf(y.old.locals[1])
	}
	halves := w.halves(y)
	for i, id := range y.new.locals {
		if i > 1 && i < len(y.old.locals) || w.v.all[id].op == opPoison {
			continue
		}
		r := relation{local: i, same: i < len(y.old.locals) && y.old.locals[i] == id, pointer: w.offsetOf(id), place: w.numberOf(id)}
		if len(y.old.locals) > 1 {
			r.above = w.above(id, y.old.locals[1])
		}
		if i >= len(y.old.locals) {
			r.place = fact{} // no new local holds a number
			for _, h := range halves {
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
	w.steps -= 10 + 4*len(c.locals) + len(halves)
	return c
}

// half is the lower half of a local of the old side, or of a word of the frame.
type half struct {
	id   int32
	of   int64
	word bool
}

// halves are those that a new local may be.
func (w *walk) halves(y way) (all []half) {
	if len(y.new.locals) == len(y.old.locals) {
		return nil
	}
	for j, id := range y.old.locals {
		if w.before.locals[j] == typeI64 {
			all = append(all, half{id: w.v.unary(opWrap, id), of: int64(j)})
		}
	}
	for _, r := range y.x.words {
		all = append(all, half{id: w.v.unary(opWrap, r.value), of: r.key, word: true})
	}
	return all
}

// enter makes the way from a cut on.
func (w *walk) enter(c *cut) {
	w.clear()
	old, now, x := &side{f: w.before, pc: c.key.old}, &side{f: w.after, pc: c.key.new}, &world{framed: c.framed}
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
		now.locals[r.local] = w.related(r, old, x)
	}
	w.steps -= len(now.locals) / 8
	w.ways = append(w.ways, way{old: old, new: now, x: x})
}

// related is what a local of the new side is at the beginning of a segment.
func (w *walk) related(r relation, old *side, x *world) int32 {
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
	var halves []int32
	for _, j := range r.wraps {
		halves = append(halves, w.v.unary(opWrap, old.locals[j]))
	}
	for _, at := range r.words {
		word, ok := x.words.get(at)
		if !ok {
			word = w.v.fresh(opSymbol)
			x.words.set(at, word)
		}
		halves = append(halves, w.v.unary(opWrap, word))
	}
	id := halves[0]
	for _, half := range halves { // one that is a symbol is what another local is known to be, and so this one too
		if w.v.all[half].op == opSymbol {
			id = half
		}
	}
	for _, half := range halves {
		if half != id {
			w.v.alias[half] = id
		}
	}
	return id
}

// catchUp runs the new side, behind the same events, over what does not show: blocks, branches, and statements that set locals of its own
// without looking into memory.
func (w *walk) catchUp(y way) error {
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
		for next := s.pc; next < end; next++ { // a statement is straight
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

// statement is the end of one that sets a local of the new side's own, or the place in the code, from what is at hand; -1 = none begins
// here.
func (w *walk) statement(f *function, pc int) int {
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
