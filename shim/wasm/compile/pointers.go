package compile

import (
	"encoding/binary"
	"maps"
)

// pointers are the addresses that are in locals of their own at a place of the second way: those that were cut out of a
// local (by its index) or of a word of the frame (^offset). An engine that knows how far one of them may be followed knows it for as long
// as it is the same value.
type pointers struct {
	locals map[int64]uint32 // of each, wherever it is known
	known  map[int64]bool
	outer  []map[int64]bool // what was known where the "if"s around began
	next   uint32
}

func (p *pointers) forget() { clear(p.known) }

// forgetWords forgets those that come from the frame, or those of them that lie in a part of it.
func (p *pointers) forgetWords(from, end int64) {
	maps.DeleteFunc(p.known, func(key int64, _ bool) bool { return key < 0 && ^key < end && ^key+8 > from })
}

// begin is for what begins an "if", and finish for what ends one; falls says whether its last instruction does not end the
// way.
func (p *pointers) begin() { p.outer = append(p.outer, maps.Clone(p.known)) }

func (p *pointers) finish(falls bool) {
	before := p.outer[len(p.outer)-1]
	p.outer = p.outer[:len(p.outer)-1]
	if falls {
		maps.DeleteFunc(before, func(key int64, _ bool) bool { return !p.known[key] })
	}
	p.known = before
}

// local gives the local for an address, and whether it is there already.
func (p *pointers) local(key int64) (uint32, bool) {
	known := p.known[key]
	p.known[key] = true
	local, ok := p.locals[key]
	if !ok {
		local = p.next
		p.locals[key] = local
		p.next++
	}
	return local, known
}

// writePointer writes what cuts an address out of a local or of a word of the frame, and returns its last instruction, or
// declines with false.
func (w *way) writePointer(i, end int) (last int, is bool) {
	one := &w.code[i]
	if one.op != opLocalGet || i+2 >= end {
		return 0, false
	}
	key, last := one.value, i+1
	switch {
	case w.trace != nil && w.trace.notes[i].kind == base && w.code[i+1].op == opI64Load:
		key, last = ^w.trace.notes[i+1].is-w.trace.frame, i+2
	case one.value <= stackPointer:
		return 0, false
	}
	if w.code[last].op != opI32WrapI64 {
		return 0, false
	}
	local, known := w.pointers.local(key)
	if known {
		w.out = binary.AppendUvarint(append(w.out, opLocalGet), uint64(local))
		return last, true
	}
	for k := i; k < last; k++ {
		w.writeInstruction(k)
	}
	w.out = binary.AppendUvarint(append(w.out, opI32WrapI64, opLocalTee), uint64(local))
	return last, true
}

// change forgets what an instruction makes untrue.
func (w *way) change(i int) {
	switch one := &w.code[i]; {
	case one.op == opLocalSet || one.op == opLocalTee:
		delete(w.pointers.known, one.value)
	case one.op >= opStoreFirst && one.op <= opStoreLast:
		if w.trace != nil && w.trace.notes[i].kind == offset {
			from := w.trace.notes[i].is + w.trace.frame
			w.pointers.forgetWords(from, from+int64(accessSizes[one.op-opLoadFirst]))
			return
		}
		w.pointers.forgetWords(0, 1<<40)
	case one.op == opCall || one.op == opCallOf || one.op == opPrefixFC || one.op == opMemoryGrow:
		w.pointers.forgetWords(0, 1<<40)
	}
}
