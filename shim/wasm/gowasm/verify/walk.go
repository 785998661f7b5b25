package verify

import (
	"errors"
	"fmt"
)

// walk goes through both bodies at once. It cuts the ways where they meet in what was there before: each cut has a state, which is
// what is true whichever way led there, and from each the next segments are walked.
type walk struct {
	module        *Module
	before, after *function
	v             values
	steps         int
	first         int32 // the stack pointer at the beginning
	given         bool  // addresses in the frame are given away

	cuts  map[cutKey]*cut
	ready []*cut
	ways  []way

	seen   []int // by instruction of the new side: the last catchUp that came there
	caught int   // how often catchUp was called

	used, uses *span // what is touched by the first stack pointer: before, and now
	level      bool  // the stack pointer is where it was whenever the function returns
	small      bool  // there is no check for a larger stack
}

// way is one that is still to be walked.
type way struct {
	old, new *side
	x        *world
	held     *event // what the old side has shown and the new one has not
}

func newWalk(m *Module, before, after *function) *walk {
	w := &walk{module: m, before: before, after: after, cuts: map[cutKey]*cut{}, seen: make([]int, len(after.code))}
	w.steps = 100000 + 400*(len(before.code)+len(after.code))
	w.given = m.gives(before)
	w.small, w.level = true, true
	for k := range before.code[1:] {
		w.small = w.small && (before.code[k].op != opI32LeU || before.code[k+1].op != opIf)
	}
	return w
}

// run returns why it is not certain that both do the same.
func (w *walk) run() error {
	w.begin()
	for {
		for len(w.ways) > 0 {
			if len(w.ways)*len(w.after.locals) > maxPending {
				return errSteps
			}
			last := len(w.ways) - 1
			one := w.ways[last]
			w.ways = w.ways[:last]
			if err := w.follow(one); err != nil {
				return fmt.Errorf("at %d (%d): %w", one.old.pc, one.new.pc, err)
			}
		}
		if len(w.ready) == 0 {
			return w.end()
		}
		last := len(w.ready) - 1
		c := w.ready[last]
		w.ready, c.ready = w.ready[:last], false
		w.enter(c)
	}
}

// maxPending bounds the locals of ways that are still to be walked.
const maxPending = 4 << 20

// begin makes the way from the beginning.
func (w *walk) begin() {
	w.clear()
	old, now := &side{f: w.before}, &side{f: w.after}
	for i, kind := range w.after.locals {
		zero := w.v.constant(opI32Const+uint16(0x7f-kind), 0)
		if i == 0 && len(w.before.locals) > 0 {
			zero = w.v.fresh(opSymbol) // the parameter
		}
		if i < len(w.before.locals) {
			old.locals = append(old.locals, zero)
		} else {
			zero = w.v.fresh(opPoison) // a new local is to be set before it is read
		}
		now.locals = append(now.locals, zero)
	}
	x := &world{framed: w.small}
	x.globals.set(0, w.first)
	w.ways = append(w.ways, way{old: old, new: now, x: x})
}

func (w *walk) clear() {
	w.v.reset()
	w.first = w.v.fresh(opSymbol)
	w.v.stack[w.first] = true
}

// maxSmall is the largest frame of a function that does not ask for a larger stack.
const maxSmall = 4 << 10

// end looks at what was gathered from all ways.
func (w *walk) end() error {
	switch {
	case w.uses == nil:
		return nil
	case w.used == nil || w.uses.low < w.used.low || w.uses.high > w.used.high:
		return errors.New("it touches its frame where it did not before")
	case w.small && w.used.low < -maxSmall:
		return errors.New("its frame is large, and it does not ask for a larger stack")
	}
	return nil
}

var (
	errDiffer = errors.New("it does something else")
	errLoads  = errors.New("it has loads that were not certain before")
	errLess   = errors.New("it lacks loads that were there before")
)

// follow walks a way to its next cut, its end, or where it forks.
func (w *walk) follow(y way) error {
	for {
		e := y.held
		if y.held = nil; e == nil {
			var err error
			if e, err = w.next(y.old, y.x, true); err != nil {
				return err
			}
		}
		if e.op == eventMerge {
			return w.arrive(y)
		}
		o, err := w.next(y.new, y.x, false)
		if err != nil {
			return err
		}
		if e.op == eventTable && o.op == eventDecision && o.args[0] == e.args[0] {
			w.split(y, e, o)
			return nil
		}
		if !e.equals(o) {
			return errDiffer
		}
		if !y.x.paid() {
			return errLess
		}
		if !w.settle(y.x, e) {
			return errLoads
		}
		switch e.op {
		case opReturn:
			w.level = w.level && w.offsetOf(w.global(y.x, 0)) == fact{known: true}
			return nil
		case opUnreachable:
			return nil
		case eventDecision:
			w.fork(y, e, o)
			return nil
		case eventTable:
			w.spread(y, e, o)
			return nil
		}
		for _, id := range w.apply(y.x, e) {
			y.old.push(id)
			y.new.push(id)
		}
	}
}

// fork follows both ways of a decision.
func (w *walk) fork(y way, e, o *event) {
	asked := w.v.all[e.args[0]]
	asks := asked.op == opI32GtU && asked.a == w.first && w.isLoaded(asked.b)
	w.steps -= len(w.after.locals) / 8
	for k, truth := range []bool{true, false} {
		n := y
		if truth {
			n = way{old: y.old.clone(), new: y.new.clone(), x: y.x.clone()}
		}
		n.x.truths.set(int64(e.args[0]), truth)
		n.x.isNil = truth && asked.op == opI64Eqz
		n.x.framed = n.x.framed || asks && truth
		n.old.leave(e.exits[k])
		n.new.leave(o.exits[k])
		w.ways = append(w.ways, n)
	}
}

// isLoaded says whether a value comes from memory, or is a constant above one that does.
func (w *walk) isLoaded(id int32) bool {
	n := w.v.all[id]
	if n.op == opOffset {
		n = w.v.all[n.a]
	}
	return n.op >= opLoadFirst && n.op <= opLoadLast
}

// spread follows all ways of a table, each pair of places once.
func (w *walk) spread(y way, e, o *event) {
	type pair struct{ a, b int }
	seen := map[pair]bool{}
	for k := range e.exits {
		p := pair{e.exits[k].pc, o.exits[k].pc}
		if seen[p] {
			continue
		}
		seen[p] = true
		w.steps -= len(w.after.locals) / 8
		n := way{old: y.old.clone(), new: y.new.clone(), x: y.x.clone()}
		n.old.leave(e.exits[k])
		n.new.leave(o.exits[k])
		if k > 0 {
			w.resume(n)
		}
		w.ways = append(w.ways, n)
	}
}

// resume makes a way that of a goroutine that goes on: the stack pointer is not that of a call.
func (w *walk) resume(y way) {
	pointer := w.v.fresh(opSymbol)
	w.v.stack[pointer] = true
	for _, s := range []*side{y.old, y.new} {
		for i, id := range s.locals {
			if id == w.first {
				s.locals[i] = pointer
			}
		}
	}
	if w.global(y.x, 0) == w.first {
		y.x.globals.set(0, pointer)
	}
}

// split follows the ways on which what the old side has a table for is 0, as the new one asks first, and is not.
func (w *walk) split(y way, choice, asks *event) {
	zero := w.v.constant(opI32Const, 0)
	is := way{old: y.old.clone(), new: y.new.clone(), x: y.x.clone()}
	for _, s := range []*side{is.old, is.new} {
		for i, id := range s.locals {
			if id == choice.args[0] {
				s.locals[i] = zero
			}
		}
	}
	is.x.truths.set(int64(choice.args[0]), false)
	is.old.leave(choice.exits[0])
	is.new.leave(asks.exits[1])
	y.x.truths.set(int64(choice.args[0]), true)
	y.new.leave(asks.exits[0])
	y.held = choice
	w.resume(y)
	w.ways = append(w.ways, is, y)
}
