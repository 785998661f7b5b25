package verify

import (
	"errors"
	"slices"
)

// side is how far one of the bodies has been executed.
type side struct {
	f      *function
	pc     int
	stack  []int32
	locals []int32
}

func (s *side) clone() *side {
	return &side{f: s.f, pc: s.pc, stack: slices.Clone(s.stack), locals: slices.Clone(s.locals)}
}

func (s *side) push(id int32) { s.stack = append(s.stack, id) }

func (s *side) pop() int32 {
	last := len(s.stack) - 1
	id := s.stack[last]
	s.stack = s.stack[:last]
	return id
}

// leave continues where a branch leads.
func (s *side) leave(e exit) {
	kept := s.stack[len(s.stack)-e.arity:]
	s.stack = append(s.stack[:e.height], kept...)
	s.pc = e.pc
}

// event is an effect. The side has executed it, except for the target of a decision and the
// results of a call.
type event struct {
	op    uint16
	value int64
	args  [5]int32 // ids of values; unused ones are 0
	more  []int32  // the operands of a call
	exits []exit   // of a decision: if true, and if false; of a table all
	gives int
}

// Events that are not instructions.
const (
	eventDecision = 0x300 + iota
	eventTable
	eventLocal
	eventTrap
	eventMerge
)

func (e *event) equals(o *event) bool {
	return e.op == o.op && e.value == o.value && e.args == o.args && slices.Equal(e.more, o.more) && len(e.exits) == len(o.exits) && e.gives == o.gives
}

var errSteps = errors.New("it takes too many steps")

// next runs a side to its next event. With merges it also stops where paths join, unless it has
// not moved.
func (w *proof) next(s *side, x *state, merges bool) (*event, error) {
	for moved := false; ; moved = true {
		if w.steps--; w.steps < 0 {
			return nil, errSteps
		}
		if s.pc == len(s.f.code) {
			return w.returned(s), nil
		}
		if merges && moved && s.f.merges[s.pc] && !w.dispatches(s) {
			return &event{op: eventMerge}, nil
		}
		e, err := w.step(s, x, merges)
		if e != nil || err != nil {
			return e, err
		}
	}
}

// dispatches says whether the place is a dispatch loop, and the value of local 0 is known.
func (w *proof) dispatches(s *side) bool {
	_, known := w.v.isConstant(s.locals[0])
	return known && s.f.dispatch[s.pc]
}

func (w *proof) returned(s *side) *event {
	return &event{op: opReturn, more: slices.Clone(s.stack[len(s.stack)-s.f.results:])}
}

// step executes one instruction. isOld says whether the side is the original.
func (w *proof) step(s *side, x *state, isOld bool) (*event, error) {
	i := &s.f.code[s.pc]
	s.pc++
	switch op := i.op; {
	case op == opNop || op == opBlock || op == opLoop || op == opEnd:
	case op == opElse || op == opBr:
		s.leave(i.exits[0])
	case op == opIf:
		return w.decide(s, x, exit{pc: s.pc, height: len(s.stack) - 1}, i.exits[0])
	case op == opBrIf:
		return w.decide(s, x, i.exits[0], exit{pc: s.pc, height: len(s.stack) - 1})
	case op == opBrTable:
		by := s.pop()
		if n, ok := w.v.isConstant(by); ok {
			s.leave(i.exits[min(uint64(uint32(n)), uint64(len(i.exits)-1))])
			return nil, nil
		}
		return &event{op: eventTable, args: [5]int32{by}, exits: i.exits}, nil
	case op == opReturn:
		return w.returned(s), nil
	case op == opUnreachable:
		return &event{op: opUnreachable}, nil
	case op == opCall || op == opCallOf:
		takes, gives, err := w.module.effect(i)
		if err != nil {
			return nil, err
		}
		from := len(s.stack) - takes
		e := &event{op: op, value: i.value, more: slices.Clone(s.stack[from:]), gives: gives}
		s.stack = s.stack[:from]
		return e, nil
	case op == opDrop:
		s.pop()
	case op == opSelect:
		c, b, a := s.pop(), s.pop(), s.pop()
		s.push(w.v.number(value{op: op, a: a, b: b, c: c}))
	case op == opLocalGet:
		s.push(s.locals[i.value])
	case op == opLocalSet || op == opLocalTee:
		return w.setLocal(s, i), nil
	case op == opGlobalGet:
		s.push(w.global(x, i.value))
	case op == opGlobalSet:
		return &event{op: op, value: i.value, args: [5]int32{s.pop()}}, nil
	case op >= opLoadFirst && op <= opStoreLast:
		return w.access(s, x, i, isOld)
	default:
		return w.compute(s, x, i)
	}
	return nil, nil
}

// setLocal sets a local. It is an event for the locals that both sides have, except local 0 and
// the stack pointer.
func (w *proof) setLocal(s *side, i *instr) *event {
	id := s.pop()
	s.locals[i.value] = id
	if i.value == 1 && s.f == w.before && s.f.locals[1] == typeI32 {
		root := id
		if n := w.v.all[id]; n.op == opOffset {
			root = n.a
		}
		w.v.stack[root] = true
	}
	if i.op == opLocalTee {
		s.push(id)
	}
	if i.value <= 1 || i.value >= int64(len(w.before.locals)) {
		return nil
	}
	return &event{op: eventLocal, value: i.value, args: [5]int32{id}}
}

// decide follows a condition that is known, or makes it an event.
func (w *proof) decide(s *side, x *state, yes, no exit) (*event, error) {
	asked, not := w.v.condition(s.pop())
	truth, known := x.conditions.get(int64(asked))
	if n, ok := w.v.isConstant(asked); ok {
		truth, known = n != 0, true
	}
	// Both exits are for the stack without the operand; a branch that is not taken keeps all operands.
	if not {
		yes, no = no, yes
	}
	if known {
		if truth {
			s.leave(yes)
		} else {
			s.leave(no)
		}
		return nil, nil
	}
	return &event{op: eventDecision, args: [5]int32{asked}, exits: []exit{yes, no}}, nil
}

// compute executes numeric instructions and those on memory as a whole.
func (w *proof) compute(s *side, x *state, i *instr) (*event, error) {
	switch op := i.op; {
	case op >= opI32Const && op <= opF64Const:
		s.push(w.v.constant(op, i.value))
	case op == opMemorySize:
		s.push(w.v.number(value{op: op, imm: int64(x.grown)}))
	case op == opMemoryGrow:
		return &event{op: op, args: [5]int32{s.pop()}, gives: 1}, nil
	case op == opMemoryCopy || op == opMemoryFill:
		c, b, a := s.pop(), s.pop(), s.pop()
		return &event{op: op, args: [5]int32{a, b, c}}, nil
	case op >= bulkBase && op <= bulkBase+7 || op <= opLastNumeric && isUnary(op):
		a := s.pop()
		s.push(w.v.unary(op, a))
		if mayTrap(op) {
			return &event{op: eventTrap, value: int64(op), args: [5]int32{a}}, nil
		}
	case op <= opLastNumeric:
		b, a := s.pop(), s.pop()
		s.push(w.v.binary(op, a, b))
		if mayTrap(op) {
			return &event{op: eventTrap, value: int64(op), args: [5]int32{a, b}}, nil
		}
	default:
		return nil, errUnknown
	}
	return nil, nil
}
