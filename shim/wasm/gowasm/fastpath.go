package gowasm

import (
	"encoding/binary"
	"math"
	"runtime"
)

// fastPath writes a copy of a function in structured form, for calls: jumps are branches, loops
// are loops, and there are no resume points.
type fastPath struct {
	*controlFlow
	frame     *frameAnalysis // nil = the stack pointer is used as it is
	frameBase uint32         // the local that holds the lower end of the frame
	nesting   []byte         // the open constructs of the block that is written, by their opcodes
	checks    []nilCheck
	checkAt   map[int]int // the index in checks of an "if"
	addressCache
	emitter
}

// noBlock is the label of a construct that no block follows.
const noBlock = math.MinInt

// addFastPath returns a body that does the same and has a fast path for calls. Go's compiler lets
// every jump go through the dispatch loop at the head of the function, where a goroutine resumes.
// So for an engine any block may follow any other: no value stays in a register and no bound stays
// checked. On the fast path jumps are branches, loops are loops, and the stack pointer, which
// every call leaves as it was, is one value (frameAnalysis). The dispatch loop stays for
// goroutines that resume, and for calls that need a larger stack first.
//
// The body has not been validated. If its constructs and jumps do not fit together, reading it
// runs out of bounds, and it is returned as it is: wazero reports what is wrong with it.
func (m *goModule) addFastPath(body []byte) (out []byte) {
	defer func() {
		if p := recover(); p != nil {
			if _, bounds := p.(runtime.Error); !bounds {
				panic(p)
			}
			out = body
		}
	}()
	h, ok := readHeader(body)
	if !ok {
		return body
	}
	code, ok := decode(nil, body, h.start)
	if !ok {
		return body
	}
	f, ok := newControlFlow(body, code)
	if !ok {
		return body
	}
	w := &fastPath{controlFlow: f, frameBase: h.locals}
	w.addressCache = addressCache{locals: map[int64]uint32{}, known: map[int64]bool{}, next: h.locals + 1}
	if w.frame, ok = m.analyzeFrame(f); !ok {
		w.frame = nil
	}
	w.out = append(w.out, opLocalGet, 0, opI32Eqz)
	w.open(opIf, noBlock)
	if w.frame != nil {
		w.out = append(w.out, opLocalGet, stackPointer)
		if w.frame.size > 0 {
			w.out = append(w.out, opI32Const)
			w.out = append(appendSigned(w.out, w.frame.size), opI32Sub)
		}
		w.out = binary.AppendUvarint(append(w.out, opLocalSet), uint64(w.frameBase))
		if check, _ := w.stackCheck(); check < 0 {
			w.probeFrame() // otherwise the frame may start below address 0 until the stack is large enough
		}
	}
	w.findNilChecks(m)
	for k := len(w.checks) - 1; k >= 0; k-- {
		w.open(opBlock, panicLabel(k)) // which a check that fails branches out of
	}
	if !w.writeTree(0) {
		return body
	}
	w.out = append(w.out, opUnreachable)
	w.writePanicCalls()
	w.close()
	entry := int(code[f.entry].at)
	out = h.append(make([]byte, 0, len(body)+len(w.out)+16), body, w.addressCache.next-h.locals)
	out = append(out, body[h.start:entry]...)
	return append(append(out, w.out...), body[entry:]...)
}

// probeFrame loads the last byte of the frame that is used, so that wazero has checked the bounds
// of all of it.
func (w *fastPath) probeFrame() {
	if w.frame == nil || w.frame.end == unknownOffset {
		return
	}
	w.out = binary.AppendUvarint(append(w.out, opLocalGet), uint64(w.frameBase))
	w.out = append(w.out, opI32Load8U, 0)
	w.out = append(binary.AppendUvarint(w.out, uint64(w.frame.end+w.frame.size-1)), opDrop)
}

// writeTree writes a block and all blocks that it dominates.
func (w *fastPath) writeTree(n int) bool {
	c, below := &w.blocks[n], w.dominated[n]
	if w.isLoopHeader[n] {
		w.open(opLoop, ^n)
		w.probeFrame()
		w.forget()
	} else if w.isJumpTarget[n] {
		w.reassignBase()
	}
	runsOn := c.fallsThrough && len(below) > 0 && below[0] == n+1 && !w.isJumpTarget[n+1]
	for i := len(below) - 1; i >= 0; i-- {
		if i > 0 || !runsOn {
			w.open(opBlock, below[i])
		}
	}
	if !w.writeBlock(n) || c.fallsThrough && !runsOn && !w.branchTo(opBr, n, n+1, 0) {
		return false
	}
	if c.endsInTrap {
		w.out = append(w.out, opUnreachable)
	}
	for i, next := range below {
		if i > 0 || !runsOn {
			w.close()
			w.forget() // the block that was written last does not lead here
		}
		if !w.writeTree(next) {
			return false
		}
	}
	if w.isLoopHeader[n] {
		w.close()
	}
	return true
}

// reassignBase sets the frame base to itself. After a join point wazero treats it as another value
// at each read, unless it is set there.
func (w *fastPath) reassignBase() {
	if w.frame != nil {
		w.out = binary.AppendUvarint(append(w.out, opLocalGet), uint64(w.frameBase))
		w.out = binary.AppendUvarint(append(w.out, opLocalSet), uint64(w.frameBase))
	}
}

// branchTo writes a branch from a block to another.
func (w *fastPath) branchTo(op byte, from, to, nest int) bool {
	label := to
	if w.isBackEdge(from, to) {
		label = ^to
	}
	return w.branchToLabel(op, label, nest)
}

// writeBlock writes the instructions of a block.
func (w *fastPath) writeBlock(n int) bool {
	c := &w.blocks[n]
	check, checkEnd := -1, -1
	if n == 0 {
		check, checkEnd = w.stackCheck()
	}
	w.nesting = w.nesting[:0]
	for i := c.first; i < c.end; i++ {
		if i == check {
			// The dispatch loop grows the stack.
			w.out = binary.AppendUvarint(append(w.out, opIf, emptyType&0x7f, opBr), uint64(len(w.labels)))
			w.out = append(w.out, opElse, opEnd)
			w.probeFrame()
			i = checkEnd
			continue
		}
		if last, is := w.writeAddress(i, c.end); is {
			i = last
			continue
		}
		if k, is := w.checkAt[i]; is {
			w.branchToLabel(opBrIf, panicLabel(k), len(w.nesting))
			i = w.checks[k].last
			continue
		}
		if to, is := w.conditionalJump(i, len(w.nesting), n); is {
			w.foldCondition(i)
			if !w.writeConditionalJump(n, to) {
				return false
			}
			i += 4
			continue
		}
		if !w.writeInstruction(i, n) {
			return false
		}
	}
	return true
}

// writeInstruction writes an instruction, and keeps track of constructs and addresses.
func (w *fastPath) writeInstruction(i, n int) bool {
	switch one := &w.code[i]; one.op {
	case opBlock, opLoop:
		w.nesting = append(w.nesting, one.op)
		w.forget()
	case opIf:
		w.foldCondition(i)
		w.nesting = append(w.nesting, one.op)
		w.enterIf()
	case opElse:
		w.nesting[len(w.nesting)-1] = one.op
		w.forget()
	case opEnd:
		last := len(w.nesting) - 1
		switch w.nesting[last] {
		case opIf:
			w.out = append(w.out, opElse) // without it wazero forgets at the end which bounds it has checked
			w.leaveIf(!neverFallsThrough(w.code[i-1].op))
		case opElse:
			w.leaveIf(true)
			w.forget()
		default:
			w.forget()
		}
		w.nesting = w.nesting[:last]
		w.out = append(w.out, opEnd)
		w.reassignBase()
		return true
	case opBr, opBrIf:
		nest := len(w.nesting)
		switch to, kind := w.branchTarget(i, nest, n); kind {
		case innerBranch:
			if at := nest - 1 - int(one.value); w.nesting[at] == opIf {
				w.nesting[at] = opElse // its end is reached from here too
			}
		case jumpBranch:
			return w.branchTo(opBr, n, to, nest)
		case outerBranch:
			w.out = binary.AppendUvarint(append(w.out, one.op), uint64(w.outerDepth(i, nest, n)+nest+len(w.labels)))
			return true
		}
	}
	w.invalidate(i)
	w.copyInstruction(i)
	return true
}

// copyInstruction writes an instruction that is no branch.
func (w *fastPath) copyInstruction(i int) {
	if w.frame == nil || !w.writeFrameAccess(i) {
		w.out = append(w.out, w.body[w.code[i].at:w.code[i].end]...)
	}
}

// stackCheck finds the instructions at the start of a function that grow the stack if it is too
// small, from their "if" to its "end". Nothing is changed before them.
func (f *controlFlow) stackCheck() (first, last int) {
	c := &f.blocks[0]
	if f.isLoopHeader[0] {
		return -1, -1
	}
	i := c.first
	for loads := 0; i < c.end && f.code[i].op != opIf; i++ {
		switch op := f.code[i].op; {
		case op == opLocalGet || op == opGlobalGet || op == opI32Const || op == opI32Add || op == opI32WrapI64 || op == opI32LeU:
		case op == opI32Load && loads == 0:
			loads++
		default:
			return -1, -1
		}
	}
	if i >= c.end || i == c.first || f.code[i-1].op != opI32LeU {
		return -1, -1
	}
	first = i
	calls := false
	for i++; i < c.end; i++ {
		switch f.code[i].op {
		case opBlock, opLoop, opIf, opElse:
			return -1, -1
		case opCall:
			calls = true
		case opEnd:
			if !calls {
				return -1, -1
			}
			return first, i
		}
	}
	return -1, -1
}

// writeFrameAccess writes an instruction that uses the stack pointer, or returns false if this one
// does not.
func (w *fastPath) writeFrameAccess(i int) bool {
	n, one := w.frame.edits[i], &w.code[i]
	switch n.kind {
	case editDrop:
	case editBase:
		w.out = binary.AppendUvarint(append(w.out, opLocalGet), uint64(w.frameBase))
	case editAccess:
		w.out = binary.AppendUvarint(append(w.out, one.op), uint64(one.align))
		w.out = binary.AppendUvarint(w.out, uint64(n.offset+w.frame.size))
	case editAddress, editAdjust:
		w.out = binary.AppendUvarint(append(w.out, opLocalGet), uint64(w.frameBase))
		if above := n.offset + w.frame.size; above != 0 {
			w.out = append(appendSigned(append(w.out, opI32Const), above), opI32Add)
		}
		if n.kind == editAdjust {
			w.out = append(w.out, opGlobalSet, 0)
		}
	default:
		return false
	}
	return true
}
