package verify

import (
	"errors"
	"fmt"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// function is a body whose branches are resolved.
type function struct {
	locals   []byte // types of parameters and locals
	results  int
	code     []instr
	merges   []bool // for each instruction: paths join there
	dispatch []bool // for each instruction: it is the start of the dispatch loop, which leads to a table by local 0
}

// maxLocals bounds what a body may declare.
const maxLocals = 50000

// block is a construct that is open while branches are resolved.
type block struct {
	op        uint16
	start     int
	height    int // of the operand stack below its parameters
	takes     int
	gives     int
	dead      bool // the current instruction is unreachable
	entered   bool // its start is reachable
	preds     int  // how many reachable edges lead to its end
	refers    []*exit
	otherwise *exit // of an "if": the target if the condition is false
	tabled    bool  // a table leads to its end
}

// newFunction reads a body of a function of type t.
func (m *Module) newFunction(t format.FuncType, body []byte) (*function, error) {
	f := &function{locals: append([]byte{}, t.Params...), results: len(t.Results)}
	r := format.Reader{Rest: body}
	for range r.Number() {
		n, kind := r.Number(), r.Octet()
		if r.Bad || uint64(len(f.locals))+uint64(n) > maxLocals {
			return nil, errors.New("too many locals")
		}
		for range n {
			if kind < 0x7c || kind > 0x7f {
				return nil, errUnknown
			}
			f.locals = append(f.locals, kind)
		}
	}
	var err error
	if f.code, err = decode(&r); err != nil {
		return nil, err
	}
	f.merges, f.dispatch = make([]bool, len(f.code)+1), make([]bool, len(f.code)+1)
	l := linker{module: m, f: f}
	return f, l.link()
}

// linker resolves the branches of one function.
type linker struct {
	module *Module
	f      *function
	blocks []*block
	height int
	room   []exit // allocated for the next branches
}

// exits allocates the exits of a branch.
func (l *linker) exits(n int) []exit {
	const many = 128
	if len(l.room) < n {
		l.room = make([]exit, max(n, many))
	}
	out := l.room[:n:n]
	l.room = l.room[n:]
	return out
}

var errShape = errors.New("blocks and stack do not fit together")

func (l *linker) link() error {
	l.blocks = []*block{{op: opBlock, start: -1, gives: l.f.results, entered: true}}
	for pc := range l.f.code {
		if len(l.blocks) == 0 {
			return errShape
		}
		if err := l.resolve(pc); err != nil {
			return err
		}
	}
	if len(l.blocks) != 0 {
		return errShape
	}
	return nil
}

// shape returns how many parameters and results a construct has.
func (l *linker) shape(value int64) (takes, gives int, err error) {
	switch {
	case value == -0x40:
		return 0, 0, nil
	case value < 0:
		return 0, 1, nil
	case value < int64(len(l.module.types)):
		t := l.module.types[value]
		return len(t.Params), len(t.Results), nil
	}
	return 0, 0, errShape
}

func (l *linker) resolve(pc int) error {
	i := &l.f.code[pc]
	top := l.blocks[len(l.blocks)-1]
	switch i.op {
	case opBlock, opLoop, opIf:
		takes, gives, err := l.shape(i.value)
		if err != nil {
			return err
		}
		if i.op == opIf {
			l.height--
		}
		b := &block{op: i.op, start: pc, takes: takes, gives: gives, height: max(l.height-takes, top.height), dead: top.dead, entered: !top.dead}
		if i.op == opIf {
			i.exits = l.exits(1)
			b.otherwise = &i.exits[0]
		}
		if i.op == opLoop {
			l.f.merges[pc+1] = true
			l.f.dispatch[pc+1] = l.isDispatch(pc + 1)
		}
		l.blocks = append(l.blocks, b)
	case opElse:
		if top.op != opIf || top.otherwise == nil {
			return errShape
		}
		if !top.dead {
			top.preds++
		}
		*top.otherwise = exit{pc: pc + 1, height: top.height, arity: top.takes}
		top.otherwise = nil
		i.exits = l.exits(1)
		top.refers = append(top.refers, &i.exits[0])
		l.height, top.dead = top.height+top.takes, !top.entered
	case opEnd:
		return l.end(pc, top)
	case opBr, opBrIf, opBrTable:
		return l.branch(pc, i, top)
	case opReturn, opUnreachable:
		l.height, top.dead = top.height, true
	default:
		takes, gives, err := l.module.effect(i)
		if err != nil {
			return err
		}
		if l.height -= takes; l.height < top.height {
			if !top.dead {
				return errShape
			}
			l.height = top.height
		}
		l.height += gives
	}
	return nil
}

func (l *linker) end(pc int, top *block) error {
	if !top.dead {
		top.preds++
		if l.height != top.height+top.gives {
			return errShape
		}
	}
	if top.otherwise != nil {
		*top.otherwise = exit{pc: pc + 1, height: top.height, arity: top.takes}
		top.preds++
	}
	for _, e := range top.refers {
		*e = exit{pc: pc + 1, height: top.height, arity: top.gives}
	}
	l.height = top.height + top.gives
	l.blocks = l.blocks[:len(l.blocks)-1]
	l.f.merges[pc+1] = l.f.merges[pc+1] || top.preds > 1 || top.tabled
	if n := len(l.blocks); n > 0 {
		l.blocks[n-1].dead = l.blocks[n-1].dead || top.preds == 0 && !top.tabled
	}
	return nil
}

// branch resolves a branch, and pops its operand.
func (l *linker) branch(pc int, i *instr, top *block) error {
	if i.op != opBr {
		l.height--
	}
	if l.height < top.height && !top.dead {
		return errShape
	}
	if i.op != opBrTable {
		i.exits = l.exits(1)
		if err := l.resolveExit(i, &i.exits[0], uint64(i.value), top); err != nil {
			return err
		}
	} else {
		i.exits = l.exits(len(i.depths))
		for k, depth := range i.depths {
			if err := l.resolveExit(i, &i.exits[k], uint64(depth), top); err != nil {
				return err
			}
		}
	}
	if i.op != opBrIf || l.module.alwaysTaken(l.f.code, pc) {
		l.height, top.dead = top.height, true
	}
	return nil
}

// resolveExit resolves one exit of a branch.
func (l *linker) resolveExit(i *instr, e *exit, depth uint64, top *block) error {
	if depth >= uint64(len(l.blocks)) {
		return errShape
	}
	b := l.blocks[len(l.blocks)-1-int(depth)]
	if b.op == opLoop {
		*e = exit{pc: b.start + 1, height: b.height, arity: b.takes}
		return nil
	}
	if !top.dead {
		b.preds++
		b.tabled = b.tabled || i.op == opBrTable
	}
	b.refers = append(b.refers, e)
	return nil
}

// isDispatch says whether a place leads to a table by local 0 and nowhere else.
func (l *linker) isDispatch(pc int) bool {
	code := l.f.code
	for pc < len(code) && code[pc].op == opBlock {
		pc++
	}
	return pc+1 < len(code) && code[pc].op == opLocalGet && code[pc].value == 0 && code[pc+1].op == opBrTable
}

// alwaysTaken says whether the branch at pc tests the result of a function that never returns 0.
func (m *Module) alwaysTaken(code []instr, pc int) bool {
	call := pc - 1
	if call >= 2 && code[call].op == opLocalSet && code[call-1].op == opGlobalGet {
		call -= 2
	}
	return call >= 0 && code[call].op == opCall && m.neverReturnsZero(code[call].value)
}

// effect returns how many operands a plain instruction pops and pushes.
func (m *Module) effect(i *instr) (takes, gives int, err error) {
	switch op := i.op; {
	case op == opNop:
		return 0, 0, nil
	case op == opCall:
		if uint64(i.value) >= uint64(len(m.functions)) {
			return 0, 0, errShape
		}
		t := m.functions[i.value]
		return len(t.Params), len(t.Results), nil
	case op == opCallOf:
		if uint64(i.value) >= uint64(len(m.types)) {
			return 0, 0, errShape
		}
		t := m.types[i.value]
		return len(t.Params) + 1, len(t.Results), nil
	case op == opDrop || op == opLocalSet || op == opGlobalSet:
		return 1, 0, nil
	case op == opSelect:
		return 3, 1, nil
	case op == opLocalGet || op == opGlobalGet || op == opMemorySize || op >= opI32Const && op <= opF64Const:
		return 0, 1, nil
	case op == opLocalTee || op == opMemoryGrow || op >= opLoadFirst && op <= opLoadLast || op >= bulkBase && op <= bulkBase+7:
		return 1, 1, nil
	case op >= opStoreFirst && op <= opStoreLast:
		return 2, 0, nil
	case op == opMemoryCopy || op == opMemoryFill:
		return 3, 0, nil
	case op > opF64Const && op <= opLastNumeric:
		if isUnary(op) {
			return 1, 1, nil
		}
		return 2, 1, nil
	}
	return 0, 0, fmt.Errorf("%w: %#x", errUnknown, i.op)
}
