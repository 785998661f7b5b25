package gowasm

import (
	"encoding/binary"
	"maps"
)

// addressCache knows which addresses are in locals of their own at a place of the fast path. Such
// an address was wrapped from an i64: a local (the key is its index) or a word of the frame (the
// key is ^offset). As long as it is one SSA value, wazero does not check again the bounds that it
// has checked once.
type addressCache struct {
	locals map[int64]uint32 // the local for each key
	known  map[int64]bool
	outer  []map[int64]bool // what was known at the start of each enclosing "if"
	next   uint32
}

func (p *addressCache) forget() { clear(p.known) }

// forgetWords forgets the words that overlap a part of the frame.
func (p *addressCache) forgetWords(from, end int64) {
	maps.DeleteFunc(p.known, func(key int64, _ bool) bool { return key < 0 && ^key < end && ^key+8 > from })
}

// enterIf is called where an "if" starts, and leaveIf where it ends. falls says whether control
// reaches its end.
func (p *addressCache) enterIf() { p.outer = append(p.outer, maps.Clone(p.known)) }

func (p *addressCache) leaveIf(falls bool) {
	before := p.outer[len(p.outer)-1]
	p.outer = p.outer[:len(p.outer)-1]
	if falls {
		maps.DeleteFunc(before, func(key int64, _ bool) bool { return !p.known[key] })
	}
	p.known = before
}

// local returns the local for an address, and whether the address is in it already.
func (p *addressCache) local(key int64) (uint32, bool) {
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

// addressAt says whether an address is wrapped from a local or from a word of the frame, from
// instruction i on. It returns the key and the last instruction.
func (w *fastPath) addressAt(i, end int) (key int64, last int, is bool) {
	one := &w.code[i]
	if one.op != opLocalGet || i+2 >= end {
		return 0, 0, false
	}
	key, last = one.value, i+1
	switch {
	case w.frame != nil && w.frame.edits[i].kind == editBase && w.code[i+1].op == opI64Load:
		key, last = ^w.frame.edits[i+1].offset-w.frame.size, i+2
	case one.value <= stackPointer:
		return 0, 0, false
	}
	return key, last, w.code[last].op == opI32WrapI64
}

// writeAddress writes an address that is wrapped from a local or a word of the frame, and returns
// its last instruction. It returns false without one at i.
func (w *fastPath) writeAddress(i, end int) (last int, is bool) {
	key, last, is := w.addressAt(i, end)
	if !is {
		return 0, false
	}
	local, known := w.addressCache.local(key)
	get := binary.AppendUvarint([]byte{opLocalGet}, uint64(local))
	touch := w.extent(i, end, key)
	if !known {
		for k := i; k < last; k++ {
			w.copyInstruction(k)
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

// lookahead is how many instructions extent looks at.
const lookahead = 200

// extent returns how far the loads and stores reach that certainly follow an address as long as it
// is the same, 0 if the first of them reaches farthest. A nil check between them does not count:
// what is read through two pointers, in either order, is in memory.
func (w *fastPath) extent(i, end int, key int64) int64 {
	var stack operands // those that come from the address have the instruction that pushed them
	first, most := int64(0), int64(0)
	for k := i; k < min(end, i+lookahead); k++ {
		if other, last, is := w.addressAt(k, end); is {
			stack.replace(0, 1)
			if other == key {
				stack[len(stack)-1].from = k
			}
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
		if !plain || w.invalidates(k, key) {
			break
		}
		operand := stack.replace(takes, gives)
		if one.op >= opLoadFirst && one.op <= opStoreLast && operand.from >= 0 && one.value < maxFrame {
			if most = max(most, one.value+int64(accessSizes[one.op-opLoadFirst])); first == 0 {
				first = most
			}
		}
	}
	if first == most {
		return 0
	}
	return most
}

// invalidates says whether an instruction may change what an address was wrapped from.
func (w *fastPath) invalidates(i int, key int64) bool {
	switch one := &w.code[i]; {
	case one.op == opLocalSet || one.op == opLocalTee:
		return one.value == key
	case one.op >= opStoreFirst && one.op <= opStoreLast && key < 0:
		if n := w.frame.edits[i]; n.kind == editAccess {
			from := n.offset + w.frame.size
			return ^key < from+int64(accessSizes[one.op-opLoadFirst]) && ^key+8 > from
		}
		return w.frame.escapes
	case one.op == opMemoryGrow:
		return true
	}
	return false
}

// invalidate forgets the addresses whose origin an instruction may change.
func (w *fastPath) invalidate(i int) {
	switch one := &w.code[i]; {
	case one.op == opLocalSet || one.op == opLocalTee:
		delete(w.addressCache.known, one.value)
	case one.op >= opStoreFirst && one.op <= opStoreLast:
		if w.frame != nil && w.frame.edits[i].kind == editAccess {
			from := w.frame.edits[i].offset + w.frame.size
			w.addressCache.forgetWords(from, from+int64(accessSizes[one.op-opLoadFirst]))
			return
		}
		if w.frame != nil && w.frame.escapes { // otherwise only the function knows where its frame is
			w.addressCache.forgetWords(0, 1<<40)
		}
	case one.op == opCall || one.op == opCallOf || one.op == opPrefixFC || one.op == opMemoryGrow:
		w.addressCache.forgetWords(0, 1<<40)
	}
}
