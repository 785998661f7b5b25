package gowasm

import "math"

// frameAnalysis follows the stack pointer through a function. All offsets are in bytes from the
// stack pointer at the function's start.
type frameAnalysis struct {
	*controlFlow
	module *goModule
	size   int64 // how far the stack pointer is lowered at most: the size of the frame
	end    int64 // the end of the highest access by the stack pointer, unknownOffset = none

	offsetAt []int64 // the stack pointer at the start of each block, unknownOffset = not yet known
	edits    map[int]edit
	escapes  bool // an address in the frame may be known outside of the function
	stack    operands
}

// edit says what is written in place of an instruction.
type edit struct {
	kind   int
	offset int64 // of the stack pointer, or of the load or store
}

// Kinds of edits.
const (
	editDrop    = 1 + iota // nothing is written
	editAddress            // the value of the stack pointer
	editBase               // the local that holds the lower end of the frame
	editAccess             // the load or store, with its offset from there
	editAdjust             // the new stack pointer, into the global
)

// unknownOffset stands for an offset that is not known.
const unknownOffset = math.MinInt64

// analyzeFrame analyzes a function. It returns false if something sets the stack pointer as Go's
// compiler does not.
func (m *goModule) analyzeFrame(f *controlFlow) (*frameAnalysis, bool) {
	t := &frameAnalysis{controlFlow: f, module: m, end: unknownOffset, offsetAt: make([]int64, len(f.blocks)), edits: map[int]edit{}}
	for i := range t.offsetAt {
		t.offsetAt[i] = unknownOffset
	}
	t.offsetAt[0] = 0
	for _, n := range f.order {
		if t.offsetAt[n] == unknownOffset || !t.analyzeBlock(n) {
			return nil, false
		}
	}
	for _, n := range t.edits {
		t.escapes = t.escapes || n.kind == editAddress
	}
	return t, true
}

// setOffset records the stack pointer at the start of block n. It returns false if another path
// leads there with another one.
func (t *frameAnalysis) setOffset(n int, is int64) bool {
	if t.offsetAt[n] == unknownOffset {
		t.offsetAt[n] = is
	}
	return t.offsetAt[n] == is
}

// analyzeBlock analyzes a block.
func (t *frameAnalysis) analyzeBlock(n int) bool {
	c := &t.blocks[n]
	is := t.offsetAt[n]
	var nests []int64
	check, checkEnd := -1, -1
	if n == 0 {
		check, checkEnd = t.stackCheck()
	}
	t.stack = t.stack[:0]
	for i := c.first; i < c.end; i++ {
		if i == check {
			t.stack, i = t.stack[:0], checkEnd
			continue
		}
		one := &t.code[i]
		if takes, gives, plain := one.operands(); plain {
			last, ok := t.analyzePlain(i, takes, gives, &is)
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
		case opElse, opEnd:
			last := len(nests) - 1
			if !neverFallsThrough(t.code[i-1].op) && is != nests[last] {
				return false
			}
			if is = nests[last]; one.op == opEnd {
				nests = nests[:last]
			}
		case opBr, opBrIf:
			if !t.analyzeBranch(i, n, nests, is) {
				return false
			}
		case opCall, opCallOf:
			last, ok := t.analyzeCall(i, &is)
			if !ok {
				return false
			}
			i = last
		case opReturn:
			if before := &t.code[i-1]; (before.op != opI32Const || before.value == 0) && is != 8 {
				return false
			}
		case opUnreachable:
		default:
			return false
		}
	}
	return is > -maxFrame && is < maxFrame && (!c.fallsThrough || t.setOffset(n+1, is))
}

// analyzeBranch analyzes the branch at i in block n. nests has the stack pointer at the start of
// each construct around it in the block, and is is the stack pointer there.
func (t *frameAnalysis) analyzeBranch(i, n int, nests []int64, is int64) bool {
	switch to, kind := t.branchTarget(i, len(nests), n); kind {
	case innerBranch:
		return is == nests[len(nests)-1-int(t.code[i].value)]
	case jumpBranch:
		return t.setOffset(to, is)
	}
	return true
}

// analyzeCall analyzes a call with the two instructions that read the stack pointer again after it,
// and returns the last of them.
func (t *frameAnalysis) analyzeCall(i int, is *int64) (last int, ok bool) {
	pops := t.module.popsReturn(&t.code[i])
	if get, set := &t.code[i+1], &t.code[i+2]; get.op != opGlobalGet || get.value != 0 || set.op != opLocalSet || set.value != stackPointer {
		return i, !pops
	}
	if pops {
		*is += 8
	}
	t.edits[i+1], t.edits[i+2] = edit{kind: editDrop}, edit{kind: editDrop}
	return i + 2, true
}

// analyzePlain analyzes a plain instruction, or several that belong together, and returns the last
// of them.
func (t *frameAnalysis) analyzePlain(i, takes, gives int, is *int64) (int, bool) {
	one := &t.code[i]
	if one.op == opLocalGet && one.value == stackPointer {
		return t.analyzePointer(i, is), true
	}
	if (one.op == opLocalSet || one.op == opLocalTee) && one.value == stackPointer || one.op == opGlobalSet && one.value == 0 {
		return 0, false
	}
	operand := t.stack.replace(takes, gives)
	if one.op >= opLoadFirst && one.op <= opStoreLast && operand.from >= 0 {
		from := t.edits[operand.from].offset + operand.plus + one.value
		if one.value >= maxFrame || from >= maxFrame {
			return 0, false
		}
		t.edits[operand.from] = edit{kind: editBase}
		if operand.wraps {
			for k := operand.from + 1; k <= operand.from+4; k++ {
				t.edits[k] = edit{kind: editDrop}
			}
		}
		t.edits[i] = edit{editAccess, from}
		t.end = max(t.end, from+int64(accessSizes[one.op-opLoadFirst]))
	}
	return i, true
}

// analyzePointer analyzes the sequence that starts with pushing the stack pointer, and returns its
// last instruction.
func (t *frameAnalysis) analyzePointer(i int, is *int64) int {
	code := t.code[i:]
	if len(code) > 4 && code[1].op == opI32Const && (code[2].op == opI32Sub || code[2].op == opI32Add) &&
		code[3].op == opLocalTee && code[3].value == stackPointer && code[4].op == opGlobalSet && code[4].value == 0 &&
		code[1].value > -maxFrame && code[1].value < maxFrame && *is > -maxFrame && *is < maxFrame {
		if code[2].op == opI32Sub {
			*is -= code[1].value
		} else {
			*is += code[1].value
		}
		t.size = max(t.size, -*is)
		t.edits[i] = edit{editAdjust, *is}
		for k := i + 1; k <= i+4; k++ {
			t.edits[k] = edit{kind: editDrop}
		}
		return i + 4
	}
	t.edits[i] = edit{editAddress, *is}
	var pushed address
	pushed, last := pointerAt(t.code, i)
	t.stack = append(t.stack, pushed)
	return last
}
