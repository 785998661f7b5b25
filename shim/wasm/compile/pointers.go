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

// pointer tells whether an address is cut out of a local, or of a word of the frame, from instruction i on: what of, and its last
// instruction.
func (w *way) pointer(i, end int) (key int64, last int, is bool) {
	one := &w.code[i]
	if one.op != opLocalGet || i+2 >= end {
		return 0, 0, false
	}
	key, last = one.value, i+1
	switch {
	case w.trace != nil && w.trace.notes[i].kind == base && w.code[i+1].op == opI64Load:
		key, last = ^w.trace.notes[i+1].is-w.trace.frame, i+2
	case one.value <= stackPointer:
		return 0, 0, false
	}
	return key, last, w.code[last].op == opI32WrapI64
}

// writePointer writes what cuts an address out of a local or of a word of the frame, and returns its last instruction, or
// declines with false.
func (w *way) writePointer(i, end int) (last int, is bool) {
	key, last, is := w.pointer(i, end)
	if !is {
		return 0, false
	}
	local, known := w.pointers.local(key)
	get := binary.AppendUvarint([]byte{opLocalGet}, uint64(local))
	touch := w.reach(i, end, key)
	if !known {
		for k := i; k < last; k++ {
			w.writeInstruction(k)
		}
		w.out = append(w.out, opI32WrapI64)
		if touch == 0 {
			w.out = binary.AppendUvarint(append(w.out, opLocalTee), uint64(local))
			return last, true
		}
		w.out = binary.AppendUvarint(append(w.out, opLocalSet), uint64(local))
	}
	if touch > 0 {
		w.out = append(append(w.out, get...), opI32Load8U, 0)
		w.out = append(binary.AppendUvarint(w.out, uint64(touch-1)), opDrop)
	}
	w.out = append(w.out, get...)
	return last, true
}

// farAhead is how many instructions reach looks at.
const farAhead = 200

// reach is how far the loads and stores reach that follow an address for sure, as long as it is the same, or 0 if the first of them
// reaches as far as any. A check for a nil pointer between them counts as none: what is read through two pointers, in either order, is
// there.
func (w *way) reach(i, end int, key int64) int64 {
	var stack []bool // the operands that this way has pushed: is it the address
	first, most := int64(0), int64(0)
	for k := i; k < min(end, i+farAhead); k++ {
		if other, last, is := w.pointer(k, end); is {
			stack = append(stack, other == key)
			k = last
			continue
		}
		if c, is := w.checkAt[k]; is {
			stack = stack[:0]
			k = w.checks[c].last
			continue
		}
		one := &w.code[k]
		takes, gives, plain := one.operands()
		if !plain || w.loses(k, key) {
			break
		}
		operand := false
		for range takes {
			operand = false
			if last := len(stack) - 1; last >= 0 {
				operand, stack = stack[last], stack[:last]
			}
		}
		if one.op >= opLoadFirst && one.op <= opStoreLast && operand && one.value < maxFrame {
			if most = max(most, one.value+int64(accessSizes[one.op-opLoadFirst])); first == 0 {
				first = most
			}
		}
		for range gives {
			stack = append(stack, false)
		}
	}
	if first == most {
		return 0
	}
	return most
}

// loses says whether an instruction may change what an address was cut out of.
func (w *way) loses(i int, key int64) bool {
	switch one := &w.code[i]; {
	case one.op == opLocalSet || one.op == opLocalTee:
		return one.value == key
	case one.op >= opStoreFirst && one.op <= opStoreLast && key < 0:
		if n := w.trace.notes[i]; n.kind == offset {
			from := n.is + w.trace.frame
			return ^key < from+int64(accessSizes[one.op-opLoadFirst]) && ^key+8 > from
		}
		return w.trace.given
	case one.op == opMemoryGrow:
		return true
	}
	return false
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
		if w.trace != nil && w.trace.given { // else nothing but the function and its calls knows where the frame lies
			w.pointers.forgetWords(0, 1<<40)
		}
	case one.op == opCall || one.op == opCallOf || one.op == opPrefixFC || one.op == opMemoryGrow:
		w.pointers.forgetWords(0, 1<<40)
	}
}
