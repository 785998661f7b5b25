package compile

import (
	"encoding/binary"
	"math"
	"runtime"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// way writes a second way through a function: the one from its beginning, without places to go on from.
type way struct {
	*flow
	trace   *trace // nil = the stack pointer is used as it is
	base    uint32 // the local that the trace counts from
	nests   []byte // the blocks of the chunk that is written, by their opcodes
	labels  []int  // the chunks that branches can lead to, from the outermost on; those that repeat as ^chunk
	checks  []check
	checkAt map[int]int // the place in checks of each "if"
	pointers
	out []byte
}

// notChunk is the label of a block that no chunk follows.
const notChunk = math.MinInt

// straighten returns a body that does the same, in which a call goes a way of its own. Go's compiler lets every jump
// go through the table at the head of the function, where a goroutine that slept goes on. There everything may follow
// everything, which keeps an engine from knowing anything. On the second way jumps are branches, loops are loops, and the
// stack pointer, which every call leaves as it was, is one value (trace). The way that was there before serves the goroutines that go on,
// and the calls that have to have a larger stack first.
//
// Nobody has validated the body. One whose blocks and jumps do not fit together runs the reading of it out of bounds, and is
// returned as it is: wazero says what is wrong with it.
func (m *goModule) straighten(body []byte) (straight []byte) {
	defer func() {
		if p := recover(); p != nil {
			if _, bounds := p.(runtime.Error); !bounds {
				panic(p)
			}
			straight = body
		}
	}()
	const i32 = 0x7f
	r := format.Reader{Rest: body}
	groups := r.Number()
	head := len(body) - len(r.Rest)
	locals := uint64(1)
	first := byte(0)
	for g := range groups {
		n, kind := r.Number(), r.Octet()
		if g == 0 && n > 0 {
			first = kind
		}
		locals += uint64(n)
	}
	if r.Bad || first != i32 || locals >= math.MaxInt32 {
		return body
	}
	start := len(body) - len(r.Rest)
	code, ok := decode(nil, body, start)
	if !ok {
		return body
	}
	f, ok := newFlow(body, code)
	if !ok {
		return body
	}
	w := &way{flow: f, base: uint32(locals)}
	w.pointers = pointers{locals: map[int64]uint32{}, known: map[int64]bool{}, next: uint32(locals) + 1}
	if w.trace, ok = m.newTrace(f); !ok {
		w.trace = nil
	}
	w.out = append(w.out, opLocalGet, 0, opI32Eqz)
	w.open(opIf, notChunk)
	if w.trace != nil {
		w.out = append(w.out, opLocalGet, stackPointer)
		if w.trace.frame > 0 {
			w.out = append(w.out, opI32Const)
			w.out = append(appendSigned(w.out, w.trace.frame), opI32Sub)
		}
		w.out = binary.AppendUvarint(append(w.out, opLocalSet), uint64(w.base))
		if growth, _ := w.growth(); growth < 0 {
			w.touch() // else the frame may begin below address 0, until the stack is large enough
		}
	}
	w.findChecks(m)
	w.openCold()
	if !w.write(0) {
		return body
	}
	w.out = append(w.out, opUnreachable)
	w.writeCold()
	w.close()
	entry := int(code[f.entry].at)
	out := make([]byte, 0, len(body)+len(w.out)+16)
	out = binary.AppendUvarint(out, uint64(groups)+1)
	out = binary.AppendUvarint(append(out, body[head:start]...), uint64(w.pointers.next)-locals)
	out = append(append(out, i32), body[start:entry]...)
	return append(append(out, w.out...), body[entry:]...)
}

func (w *way) open(op byte, label int) {
	w.out = append(w.out, op, emptyType&0x7f)
	w.labels = append(w.labels, label)
}

func (w *way) close() {
	w.out = append(w.out, opEnd)
	w.labels = w.labels[:len(w.labels)-1]
}

// touch loads the last byte of the frame that is used, so that all of it is known to be inside.
func (w *way) touch() {
	if w.trace == nil || w.trace.last == unknown {
		return
	}
	w.out = binary.AppendUvarint(append(w.out, opLocalGet), uint64(w.base))
	w.out = append(w.out, opI32Load8U, 0)
	w.out = append(binary.AppendUvarint(w.out, uint64(w.trace.last+w.trace.frame-1)), opDrop)
}

// write writes a chunk and all that it is above of.
func (w *way) write(n int) bool {
	c, below := &w.chunks[n], w.below[n]
	if w.repeat[n] {
		w.open(opLoop, ^n)
		w.touch()
		w.forget()
	} else if w.jumped[n] {
		w.rename()
	}
	runsOn := c.falls && len(below) > 0 && below[0] == n+1 && !w.jumped[n+1]
	for i := len(below) - 1; i >= 0; i-- {
		if i > 0 || !runsOn {
			w.open(opBlock, below[i])
		}
	}
	if !w.writeChunk(n) || c.falls && !runsOn && !w.branchTo(opBr, n, n+1, 0) {
		return false
	}
	if c.stops {
		w.out = append(w.out, opUnreachable)
	}
	for i, next := range below {
		if i > 0 || !runsOn {
			w.close()
			w.forget() // what was written last is not what leads here
		}
		if !w.write(next) {
			return false
		}
	}
	if w.repeat[n] {
		w.close()
	}
	return true
}

// rename sets the base to itself: where several ways meet, wazero takes it for another value each time that it is read, unless it is
// set there.
func (w *way) rename() {
	if w.trace != nil {
		w.out = binary.AppendUvarint(append(w.out, opLocalGet), uint64(w.base))
		w.out = binary.AppendUvarint(append(w.out, opLocalSet), uint64(w.base))
	}
}

// branchTo branches from a chunk to another.
func (w *way) branchTo(op byte, from, to, nest int) bool {
	label := to
	if w.back(from, to) {
		label = ^to
	}
	return w.branchToLabel(op, label, nest)
}

// branchToLabel branches out of so many blocks of a chunk, and those in between, to a label.
func (w *way) branchToLabel(op byte, label, nest int) bool {
	for i := len(w.labels) - 1; i >= 0; i-- {
		if w.labels[i] == label {
			w.out = binary.AppendUvarint(append(w.out, op), uint64(len(w.labels)-1-i+nest))
			return true
		}
	}
	return false
}

// writeChunk writes the instructions of a chunk.
func (w *way) writeChunk(n int) bool {
	c := &w.chunks[n]
	growth, grown := -1, -1
	if n == 0 {
		growth, grown = w.growth()
	}
	w.nests = w.nests[:0]
	for i := c.first; i < c.end; i++ {
		if i == growth {
			// The way that was there before is taken to grow the stack.
			w.out = binary.AppendUvarint(append(w.out, opIf, emptyType&0x7f, opBr), uint64(len(w.labels)))
			w.out = append(w.out, opElse, opEnd)
			w.touch()
			i = grown
			continue
		}
		if last, is := w.writePointer(i, c.end); is {
			i = last
			continue
		}
		if k, is := w.checkAt[i]; is {
			w.branchToLabel(opBrIf, coldLabel(k), len(w.nests))
			i = w.checks[k].last
			continue
		}
		if to, is := w.jumpIf(i, len(w.nests), n); is {
			w.settle(i)
			if !w.jumpOn(n, to) {
				return false
			}
			i += 4
			continue
		}
		if !w.writeBranch(i, n) {
			return false
		}
	}
	return true
}

// writeBranch writes an instruction with what it means for those around.
func (w *way) writeBranch(i, n int) bool {
	switch one := &w.code[i]; one.op {
	case opBlock, opLoop:
		w.nests = append(w.nests, one.op)
		w.forget()
	case opIf:
		w.settle(i)
		w.nests = append(w.nests, one.op)
		w.begin()
	case opElse:
		w.nests[len(w.nests)-1] = one.op
		w.forget()
	case opEnd:
		last := len(w.nests) - 1
		switch w.nests[last] {
		case opIf:
			w.out = append(w.out, opElse) // without, wazero forgets at the end what it knows
			w.finish(!endsWay(w.code[i-1].op))
		case opElse:
			w.finish(true)
			w.forget()
		default:
			w.forget()
		}
		w.nests = w.nests[:last]
		w.out = append(w.out, opEnd)
		w.rename()
		return true
	case opBr, opBrIf:
		nest := len(w.nests)
		switch to, kind := w.branch(i, nest, n); kind {
		case inner:
			if at := nest - 1 - int(one.value); w.nests[at] == opIf {
				w.nests[at] = opElse // its end is reached from here too
			}
		case jump:
			return w.branchTo(opBr, n, to, nest)
		case outer:
			w.out = binary.AppendUvarint(append(w.out, one.op), uint64(w.outside(i, nest, n)+nest+len(w.labels)))
			return true
		}
	}
	w.change(i)
	w.writeInstruction(i)
	return true
}

// writeInstruction writes one that is no branch.
func (w *way) writeInstruction(i int) {
	if w.trace == nil || !w.writeTraced(i) {
		w.out = append(w.out, w.body[w.code[i].at:w.code[i].end]...)
	}
}

// growth finds the instructions at the beginning of a function that give it a larger stack if it has to have one: "if" and
// "end". Before them nothing has been changed.
func (f *flow) growth() (first, last int) {
	c := &f.chunks[0]
	if f.repeat[0] {
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

// writeTraced writes an instruction that the stack pointer has to do with, or declines with false.
func (w *way) writeTraced(i int) bool {
	n, one := w.trace.notes[i], &w.code[i]
	switch n.kind {
	case nothing:
	case base:
		w.out = binary.AppendUvarint(append(w.out, opLocalGet), uint64(w.base))
	case offset:
		w.out = binary.AppendUvarint(append(w.out, one.op), uint64(one.align))
		w.out = binary.AppendUvarint(w.out, uint64(n.is+w.trace.frame))
	case value, move:
		w.out = binary.AppendUvarint(append(w.out, opLocalGet), uint64(w.base))
		if above := n.is + w.trace.frame; above != 0 {
			w.out = append(appendSigned(append(w.out, opI32Const), above), opI32Add)
		}
		if n.kind == move {
			w.out = append(w.out, opGlobalSet, 0)
		}
	default:
		return false
	}
	return true
}
