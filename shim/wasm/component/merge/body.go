package merge

import (
	"encoding/binary"
	"fmt"
)

var errCut = invalid("a body is cut short")

// rewriter rewrites the bodies of one module: each index becomes that of the output.
type rewriter struct {
	m   *merger
	mod *module
	err error

	in   []byte // the body
	at   int    // what comes next
	from int    // what has not been copied yet
	out  []byte

	changed  map[uint32]bool // tables of the output that instructions change
	declared map[uint32]bool // functions of the output that ref.func refers to
	usesData bool

	scans    bool     // the following is asked for
	calls    []uint32 // functions of the output that are called
	indirect bool     // there is a call through a table
}

// body appends a body, without its size, to out.
func (w *rewriter) body(body []byte) error {
	w.in, w.at, w.from = body, 0, 0
	for range w.read() {
		w.read()
		if w.valueType(w.octet()); w.err != nil {
			break
		}
	}
	for w.at < len(w.in) {
		op := w.in[w.at]
		w.at++
		w.instruction(op)
	}
	if w.err == nil && (len(body) == 0 || body[len(body)-1] != opEnd) {
		w.fail(errCut)
	}
	w.flush(w.at)
	return w.err
}

// fail ends the body, unless err is nil.
func (w *rewriter) fail(err error) {
	if err != nil && w.err == nil {
		w.err = err
	}
	if w.err != nil {
		w.in, w.at, w.from = nil, 0, 0
	}
}

// flush copies what comes before a place.
func (w *rewriter) flush(to int) {
	if w.err != nil {
		return
	}
	w.out = append(w.out, w.in[w.from:to]...)
	w.from = w.at
}

// replace puts a number in place of what has been read from at on.
func (w *rewriter) replace(at int, n uint32) {
	w.flush(at)
	w.out = binary.AppendUvarint(w.out, uint64(n))
}

func (w *rewriter) octet() byte {
	if w.at >= len(w.in) {
		w.fail(errCut)
		return 0
	}
	b := w.in[w.at]
	w.at++
	return b
}

func (w *rewriter) skip(n int) {
	if n > len(w.in)-w.at {
		w.fail(errCut)
		return
	}
	w.at += n
}

// number passes over a number. The engine looks at its size.
func (w *rewriter) number() {
	for w.at < len(w.in) {
		w.at++
		if w.in[w.at-1] < 0x80 {
			return
		}
	}
	w.fail(errCut)
}

// read reads an unsigned number of up to 32 bits.
func (w *rewriter) read() uint32 {
	if w.at < len(w.in) && w.in[w.at] < 0x80 {
		w.at++
		return uint32(w.in[w.at-1])
	}
	v, n := binary.Uvarint(w.in[w.at:])
	if n <= 0 || n > 5 || v > 1<<32-1 {
		w.fail(errCut)
		return 0
	}
	w.at += n
	return uint32(v)
}

func (w *rewriter) valueType(t byte) {
	if w.err == nil {
		w.fail(checkValueType(t))
	}
}

// indexOf rewrites an index of a space of the module, and returns that of the output.
func (w *rewriter) indexOf(space []uint32, what string) uint32 {
	at := w.at
	n := w.read()
	if uint64(n) >= uint64(len(space)) {
		if w.err == nil {
			w.fail(invalid("%s %d of %d", what, n, len(space)))
		}
		return 0
	}
	w.replace(at, space[n])
	return space[n]
}

// offsetIndex rewrites an index of segments.
func (w *rewriter) offsetIndex(first uint32, count int, what string) {
	at := w.at
	n := w.read()
	if uint64(n) >= uint64(count) {
		if w.err == nil {
			w.fail(invalid("%s %d of %d", what, n, count))
		}
		return
	}
	w.replace(at, first+n)
}

func (w *rewriter) dataIndex() {
	if w.mod.dataCount < 0 {
		w.fail(invalid("an instruction uses data segments without a count of them"))
		return
	}
	w.usesData = true
	w.offsetIndex(w.mod.dataAt, w.mod.dataItems, "data segment")
}

func (w *rewriter) changedTable() {
	t := w.indexOf(w.mod.tables, "table")
	if w.err == nil {
		w.changed[t] = true
	}
}

// callee rewrites the index of a function that is called.
func (w *rewriter) callee() {
	at := w.at
	n := w.read()
	if uint64(n) >= uint64(len(w.mod.functions)) {
		if w.err == nil {
			w.fail(invalid("function %d of %d", n, len(w.mod.functions)))
		}
		return
	}
	w.replace(at, w.m.alias(w.mod.functions[n]))
	if w.scans {
		w.calls = append(w.calls, w.mod.functions[n])
	}
}

// callIndirect rewrites a type and a table.
func (w *rewriter) callIndirect() {
	w.indexOf(w.mod.types, "type")
	w.indexOf(w.mod.tables, "table")
	w.indirect = true
}

// refFunc rewrites the index of a function that is not called.
func (w *rewriter) refFunc() {
	at := w.at
	n := w.read()
	switch {
	case w.err != nil:
	case uint64(n) >= uint64(len(w.mod.functions)):
		w.fail(invalid("function %d of %d", n, len(w.mod.functions)))
	case !w.mod.declared[n]:
		w.fail(invalid("ref.func refers to function %d, which is not declared", n))
	default:
		f := w.m.alias(w.mod.functions[n])
		w.declared[f] = true
		w.replace(at, f)
	}
}

// globalGet rewrites the reading of a global. An immutable number becomes a constant.
func (w *rewriter) globalGet() {
	at := w.at - 1
	n := w.read()
	if uint64(n) >= uint64(len(w.mod.globals)) {
		if w.err == nil {
			w.fail(invalid("global %d of %d", n, len(w.mod.globals)))
		}
		return
	}
	n = w.mod.globals[n]
	w.flush(at)
	if g := &w.m.globals[n]; !g.mutable && g.value >= typeF64 {
		w.out = g.initial.appendTo(w.out, w.m)
		return
	}
	w.out = binary.AppendUvarint(append(w.out, opGlobalGet), uint64(n))
}

func (w *rewriter) branches() {
	n := w.read()
	for range uint64(n) + 1 {
		if w.number(); w.err != nil {
			return
		}
	}
}

// access passes over the alignment and the offset of an access to memory.
func (w *rewriter) access() {
	if align := w.read(); align >= 64 {
		w.fail(errMemories)
	}
	w.number()
	w.needMemory()
}

// memory passes over the index of the memory.
func (w *rewriter) memory() {
	if w.octet() != 0 {
		w.fail(errMemories)
	}
	w.needMemory()
}

func (w *rewriter) needMemory() {
	if len(w.mod.memories) == 0 {
		w.fail(invalid("an instruction needs a memory"))
	}
}

// rewrite rewrites the bodies of all modules.
func (m *merger) rewrite(Input) error {
	size := 0
	for _, mod := range m.modules {
		for _, b := range mod.bodies {
			size += len(b) + 5
		}
	}
	m.code = make([]byte, 0, size+size/8)
	m.declared = map[uint32]bool{}
	for _, mod := range m.modules {
		w := rewriter{m: m, mod: mod, changed: map[uint32]bool{}, declared: m.declared}
		for n, body := range mod.bodies {
			w.out = w.out[:0]
			if err := w.body(body); err != nil {
				return fmt.Errorf("instance %q: function %d: %w", mod.name, len(mod.functions)-len(mod.bodies)+n, err)
			}
			m.code = append(binary.AppendUvarint(m.code, uint64(len(w.out))), w.out...)
		}
		m.usesData = m.usesData || w.usesData
		if len(m.code) > maxSize {
			return fmt.Errorf("the code of the merged module has more than %d MiB: %w", maxSize>>20, ErrTooLarge)
		}
	}
	return nil
}
