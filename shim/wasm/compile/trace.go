package compile

import (
	"math"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// goModule is what there is to know of a module of Go's to rewrite its functions.
type goModule struct {
	shaped    []bool   // of each type: it takes an i32 and gives one
	functions []uint32 // the types of those that the module defines
	imports   uint32   // functions that it does not
	serves    bool     // it can accept connections
	sigpanic  int64    // the function that checks for nil pointers call; none = not yet known
}

func readGoModule(sections []format.Section) (*goModule, bool) {
	types, ok := format.Types(sections)
	if !ok {
		return nil, false
	}
	imports, ok := format.Imports(sections)
	if !ok {
		return nil, false
	}
	m := &goModule{sigpanic: none}
	for _, i := range imports {
		if i.Kind == format.KindFunction {
			m.imports++
			m.serves = m.serves || i.Name == "sock_accept"
		}
	}
	for _, t := range types {
		m.shaped = append(m.shaped, string(t.Params) == "\x7f" && string(t.Results) == "\x7f")
	}
	r := format.Reader{Rest: format.Find(sections, format.SectionFunction)}
	for range r.Number() {
		t := r.Number()
		if r.Bad || uint64(t) >= uint64(len(types)) {
			return nil, false
		}
		m.functions = append(m.functions, t)
	}
	return m, !r.Bad && len(r.Rest) == 0
}

// pops says whether a call is one of Go's, which leave the stack pointer 8 above where it was called.
func (m *goModule) pops(i *instruction) bool {
	if i.op == opCallOf {
		return uint64(i.value) < uint64(len(m.shaped)) && m.shaped[i.value]
	}
	defined := i.value - int64(m.imports)
	return defined >= 0 && defined < int64(len(m.functions)) && m.shaped[m.functions[defined]]
}

// trace is what becomes of the stack pointer from the beginning of a function on: it counts from what it was there, less frame.
type trace struct {
	*flow
	module *goModule
	frame  int64 // how far it is lowered
	last   int64 // the end of what is used by it, less what it was; unknown = nothing is

	at    []int64 // what it is at the beginning of each chunk, less what it was; math.MinInt64 = not yet known
	notes map[int]note
	given bool // addresses in the frame are given away
	stack []address
}

// note is what is written for an instruction.
type note struct {
	kind int
	is   int64 // the stack pointer there, less what it was; of a load or store the offset
}

// Kinds of notes.
const (
	nothing = 1 + iota // is written
	value              // of the pointer
	base               // the local that is counted from
	offset             // of a load or store, from there
	move               // of the global
)

// unknown is where the stack pointer is before that is found out.
const unknown = math.MinInt64

// newTrace follows the stack pointer, or declines with false when something moves it as Go's compiler does not.
func (m *goModule) newTrace(f *flow) (*trace, bool) {
	t := &trace{flow: f, module: m, last: unknown, at: make([]int64, len(f.chunks)), notes: map[int]note{}}
	for i := range t.at {
		t.at[i] = unknown
	}
	t.at[0] = 0
	for _, n := range f.order {
		if t.at[n] == unknown || !t.pass(n) {
			return nil, false
		}
	}
	for _, n := range t.notes {
		t.given = t.given || n.kind == value
	}
	return t, true
}

// reach says that the pointer is there at the beginning of a chunk.
func (t *trace) reach(n int, is int64) bool {
	if t.at[n] == unknown {
		t.at[n] = is
	}
	return t.at[n] == is
}

// pass goes through a chunk.
func (t *trace) pass(n int) bool {
	c := &t.chunks[n]
	is := t.at[n]
	var nests []int64
	growth, grown := -1, -1
	if n == 0 {
		growth, grown = t.growth()
	}
	t.stack = t.stack[:0]
	for i := c.first; i < c.end; i++ {
		if i == growth {
			t.stack, i = t.stack[:0], grown
			continue
		}
		one := &t.code[i]
		if takes, gives, plain := one.operands(); plain {
			last, ok := t.plain(i, takes, gives, &is)
			if !ok {
				return false
			}
			i = last
			continue
		}
		t.stack = t.stack[:0]
		switch one.op {
		case opBlock, opLoop, opIf:
			nests = append(nests, is)
		case opElse:
			if !endsWay(t.code[i-1].op) && is != nests[len(nests)-1] {
				return false
			}
			is = nests[len(nests)-1]
		case opEnd:
			if !endsWay(t.code[i-1].op) && is != nests[len(nests)-1] {
				return false
			}
			is, nests = nests[len(nests)-1], nests[:len(nests)-1]
		case opBr, opBrIf:
			switch to, kind := t.branch(i, len(nests), n); kind {
			case inner:
				if is != nests[len(nests)-1-int(one.value)] {
					return false
				}
			case jump:
				if !t.reach(to, is) {
					return false
				}
			}
		case opCall, opCallOf:
			if t.module.pops(one) {
				is += 8
			}
			if t.code[i+1].op != opGlobalGet || t.code[i+1].value != 0 || t.code[i+2].op != opLocalSet || t.code[i+2].value != stackPointer {
				if t.module.pops(one) {
					return false
				}
				break
			}
			t.notes[i+1], t.notes[i+2] = note{kind: nothing}, note{kind: nothing}
			i += 2
		case opReturn:
			if before := &t.code[i-1]; (before.op != opI32Const || before.value == 0) && is != 8 {
				return false
			}
		case opUnreachable:
		default:
			return false
		}
	}
	return is > -maxFrame && is < maxFrame && (!c.falls || t.reach(n+1, is))
}

// plain goes over an instruction that takes and gives, or several that belong together, and returns the last of them.
func (t *trace) plain(i, takes, gives int, is *int64) (int, bool) {
	one := &t.code[i]
	if one.op == opLocalGet && one.value == stackPointer {
		return t.pointer(i, is), true
	}
	if (one.op == opLocalSet || one.op == opLocalTee) && one.value == stackPointer || one.op == opGlobalSet && one.value == 0 {
		return 0, false
	}
	operand := address{from: -1}
	for range takes {
		operand = address{from: -1}
		if last := len(t.stack) - 1; last >= 0 {
			operand, t.stack = t.stack[last], t.stack[:last]
		}
	}
	if one.op >= opLoadFirst && one.op <= opStoreLast && operand.from >= 0 {
		from := t.notes[operand.from].is + operand.plus + one.value
		if one.value >= maxFrame || from >= maxFrame {
			return 0, false
		}
		t.notes[operand.from] = note{kind: base}
		if operand.wraps {
			for k := operand.from + 1; k <= operand.from+4; k++ {
				t.notes[k] = note{kind: nothing}
			}
		}
		t.notes[i] = note{offset, from}
		t.last = max(t.last, from+int64(accessSizes[one.op-opLoadFirst]))
	}
	for range gives {
		t.stack = append(t.stack, address{from: -1})
	}
	return i, true
}

// pointer goes over what begins with pushing the stack pointer.
func (t *trace) pointer(i int, is *int64) int {
	code := t.code[i:]
	if len(code) > 4 && code[1].op == opI32Const && (code[2].op == opI32Sub || code[2].op == opI32Add) &&
		code[3].op == opLocalTee && code[3].value == stackPointer && code[4].op == opGlobalSet && code[4].value == 0 &&
		code[1].value > -maxFrame && code[1].value < maxFrame && *is > -maxFrame && *is < maxFrame {
		if code[2].op == opI32Sub {
			*is -= code[1].value
		} else {
			*is += code[1].value
		}
		t.frame = max(t.frame, -*is)
		t.notes[i] = note{move, *is}
		for k := i + 1; k <= i+4; k++ {
			t.notes[k] = note{kind: nothing}
		}
		return i + 4
	}
	t.notes[i] = note{value, *is}
	var pushed address
	pushed, last := pointerAt(t.code, i)
	t.stack = append(t.stack, pushed)
	return last
}
