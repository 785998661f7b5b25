package verify

import (
	"errors"
	"fmt"
)

// proof is the attempt to show that two bodies do the same. Paths are cut where they join in the
// original: each cutpoint has a state that holds on every path to it, and from each the next
// segments are executed until no state changes.
type proof struct {
	module        *Module
	before, after *function
	v             values
	steps         int
	first         int32 // the stack pointer at the start
	escapes       bool  // addresses in the frame may be known outside

	cutpoints map[cutpointKey]*cutpoint
	ready     []*cutpoint
	paths     []path

	seen   []int // for each instruction of the new side: the last catchUp that came there
	caught int   // number of calls of catchUp

	oldFrame, newFrame *span // what is accessed relative to the first stack pointer
	keepsPointer       bool  // the stack pointer is where it was at every return
	unchecked          bool  // there is no check for a larger stack
}

// path is one that is still to be executed.
type path struct {
	old, new *side
	x        *state
	held     *event // an event of the old side that the new one has not reached
}

func newProof(m *Module, before, after *function) *proof {
	w := &proof{module: m, before: before, after: after, cutpoints: map[cutpointKey]*cutpoint{}, seen: make([]int, len(after.code))}
	w.steps = 100000 + 400*(len(before.code)+len(after.code))
	w.escapes = m.escapes(before)
	w.unchecked, w.keepsPointer = true, true
	for k := range before.code[1:] {
		w.unchecked = w.unchecked && (before.code[k].op != opI32LeU || before.code[k+1].op != opIf)
	}
	return w
}

// run returns nil if both do the same, and otherwise why the proof failed.
func (w *proof) run() error {
	w.start()
	for {
		for len(w.paths) > 0 {
			if len(w.paths)*len(w.after.locals) > maxPending {
				return errSteps
			}
			last := len(w.paths) - 1
			one := w.paths[last]
			w.paths = w.paths[:last]
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

// maxPending bounds the locals of paths that are still to be executed.
const maxPending = 4 << 20

// start starts the first path.
func (w *proof) start() {
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
			zero = w.v.fresh(opPoison) // a new local must be set before it is read
		}
		now.locals = append(now.locals, zero)
	}
	x := &state{frameInMemory: w.unchecked}
	x.globals.set(0, w.first)
	w.paths = append(w.paths, path{old: old, new: now, x: x})
}

func (w *proof) clear() {
	w.v.reset()
	w.first = w.v.fresh(opSymbol)
	w.v.stack[w.first] = true
}

// maxUnchecked is the largest frame of a function without a check for a larger stack.
const maxUnchecked = 4 << 10

// end judges what was gathered on all paths.
func (w *proof) end() error {
	switch {
	case w.newFrame == nil:
		return nil
	case w.oldFrame == nil || w.newFrame.low < w.oldFrame.low || w.newFrame.high > w.oldFrame.high:
		return errors.New("it touches its frame where it did not before")
	case w.unchecked && w.oldFrame.low < -maxUnchecked:
		return errors.New("its frame is large, and it does not ask for a larger stack")
	}
	return nil
}

var (
	errDiffer  = errors.New("it does something else")
	errExtra   = errors.New("it has loads that were not certain before")
	errMissing = errors.New("it lacks loads that were there before")
)

// follow executes a path to its next cutpoint, its end, or a decision.
func (w *proof) follow(y path) error {
	for {
		e := y.held
		if y.held = nil; e == nil {
			var err error
			if e, err = w.next(y.old, y.x, true); err != nil {
				return err
			}
		}
		if e.op == eventMerge {
			return w.reachCutpoint(y)
		}
		o, err := w.next(y.new, y.x, false)
		if err != nil {
			return err
		}
		if e.op == eventTable && o.op == eventDecision && o.args[0] == e.args[0] {
			w.followEntry(y, e, o)
			return nil
		}
		if !e.equals(o) {
			return errDiffer
		}
		if !y.x.complete() {
			return errMissing
		}
		if !w.allows(y.x, e) {
			return errExtra
		}
		switch e.op {
		case opReturn:
			w.keepsPointer = w.keepsPointer && w.offsetOf(w.global(y.x, 0)) == fact{known: true}
			return nil
		case opUnreachable:
			return nil
		case eventDecision:
			w.fork(y, e, o)
			return nil
		case eventTable:
			w.followTable(y, e, o)
			return nil
		}
		for _, id := range w.apply(y.x, e) {
			y.old.push(id)
			y.new.push(id)
		}
	}
}

// fork follows both branches of a decision.
func (w *proof) fork(y path, e, o *event) {
	asked := w.v.all[e.args[0]]
	asks := asked.op == opI32GtU && asked.a == w.first && w.comesFromMemory(asked.b)
	w.steps -= len(w.after.locals) / 8
	for k, truth := range []bool{true, false} {
		n := y
		if truth {
			n = path{old: y.old.clone(), new: y.new.clone(), x: y.x.clone()}
		}
		n.x.conditions.set(int64(e.args[0]), truth)
		n.x.isNil = truth && asked.op == opI64Eqz
		n.x.frameInMemory = n.x.frameInMemory || asks && truth
		n.old.leave(e.exits[k])
		n.new.leave(o.exits[k])
		w.paths = append(w.paths, n)
	}
}

// comesFromMemory says whether a value was loaded, or is a constant above one that was.
func (w *proof) comesFromMemory(id int32) bool {
	n := w.v.all[id]
	if n.op == opOffset {
		n = w.v.all[n.a]
	}
	return n.op >= opLoadFirst && n.op <= opLoadLast
}

// followTable follows all exits of a table, each pair of targets once.
func (w *proof) followTable(y path, e, o *event) {
	type pair struct{ a, b int }
	seen := map[pair]bool{}
	for k := range e.exits {
		p := pair{e.exits[k].pc, o.exits[k].pc}
		if seen[p] {
			continue
		}
		seen[p] = true
		w.steps -= len(w.after.locals) / 8
		n := path{old: y.old.clone(), new: y.new.clone(), x: y.x.clone()}
		n.old.leave(e.exits[k])
		n.new.leave(o.exits[k])
		if k > 0 {
			w.resume(n)
		}
		w.paths = append(w.paths, n)
	}
}

// resume makes a path that of a goroutine that resumes: its stack pointer is not that of a call.
func (w *proof) resume(y path) {
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

// followEntry follows the paths at the dispatch table of the original for which the new side first
// asks whether local 0 is 0: the one where it is, and the others.
func (w *proof) followEntry(y path, choice, asks *event) {
	zero := w.v.constant(opI32Const, 0)
	is := path{old: y.old.clone(), new: y.new.clone(), x: y.x.clone()}
	for _, s := range []*side{is.old, is.new} {
		for i, id := range s.locals {
			if id == choice.args[0] {
				s.locals[i] = zero
			}
		}
	}
	is.x.conditions.set(int64(choice.args[0]), false)
	is.old.leave(choice.exits[0])
	is.new.leave(asks.exits[1])
	y.x.conditions.set(int64(choice.args[0]), true)
	y.new.leave(asks.exits[0])
	y.held = choice
	w.resume(y)
	w.paths = append(w.paths, is, y)
}
