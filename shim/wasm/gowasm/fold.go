package gowasm

import "encoding/binary"

// The local that holds the stack pointer, and the bound of offsets and frames that are understood.
const (
	stackPointer = 1
	maxFrame     = 1 << 30
)

// folder rewrites functions, one after the other, so that wazero has fewer bounds to check. wazero
// compares every address that it has not yet checked with the end of memory, and each comparison
// is 50 bytes of machine code. It knows addresses by the value that an offset is added to. Most of
// what a Go function accesses has one such value, the stack pointer in local 1, but Go hides it:
// the offset is added by instructions, and the pointer is computed anew for every call. So, in a
// function whose only parameter and first local are i32:
//
//   - "local 1, extended, plus a constant, wrapped" is folded into local 1, and the constant into
//     the offset;
//   - the stack pointer of the next call is hoisted to the start of the straight-line code before
//     it, into a new local, and the addresses there count from that local;
//   - where several accesses follow in straight-line code, a load that reaches as far as any of
//     them is put first, and dropped, so that one check covers all.
//
// A valid module does the same as before as long as no stack frame reaches around the end of the
// address space. An invalid one stays invalid: valid instructions are replaced by valid ones,
// wherever they are. Functions with unknown instructions stay as they are.
type folder struct {
	code        []instruction
	stack       operands    // of the straight-line code so far
	insertions  []insertion // code to insert, in order
	newBase     uint32      // the new local
	usesNewBase bool        // the new local is needed
	changed     bool        // something was changed

	// Of the straight-line code in which local 1 stays the same:
	accesses []access
	checked  uint64 // bytes from local 1 on whose bounds are checked
}

// insertion is code to insert before an instruction.
type insertion struct {
	before int
	code   []byte
}

// address is an operand. One that does not come from the stack pointer has from = -1.
type address struct {
	from  int   // the instruction that pushes local 1
	plus  int64 // what is added to it
	wraps bool  // the addition is made by instructions, the last of which wraps
}

// access is a load or store relative to the stack pointer.
type access struct {
	from, by int    // the instruction that pushes local 1, and the load or store
	offset   uint64 // from local 1
	end      uint64 // offset and size
}

// fold returns a body that does the same.
func (f *folder) fold(body []byte) []byte {
	h, ok := readHeader(body)
	if !ok {
		return body
	}
	code, ok := decode(f.code[:0], body, h.start)
	if !ok {
		return body
	}
	f.code, f.insertions, f.newBase, f.usesNewBase, f.changed = code, f.insertions[:0], h.locals, false, false
	f.walk()
	if !f.changed {
		return body
	}
	out := make([]byte, 0, len(body)+16)
	if f.usesNewBase {
		out = h.append(out, body, 1)
	} else {
		out = append(out, body[:h.start]...)
	}
	return f.write(out, body)
}

// write appends the instructions as they are now.
func (f *folder) write(out, body []byte) []byte {
	next := f.insertions
	for i := range f.code {
		if len(next) > 0 && next[0].before == i {
			out, next = append(out, next[0].code...), next[1:]
		}
		switch one := &f.code[i]; {
		case one.removed:
		case !one.changed:
			out = append(out, body[one.at:one.end]...)
		case one.op == opLocalGet:
			out = binary.AppendUvarint(append(out, one.op), uint64(one.value))
		default: // a load or store
			out = binary.AppendUvarint(append(out, one.op), uint64(one.align))
			out = binary.AppendUvarint(out, uint64(one.value))
		}
	}
	return out
}

// walk visits the instructions. At a branch or call all that is known is forgotten.
func (f *folder) walk() {
	f.stack, f.accesses, f.checked = f.stack[:0], f.accesses[:0], 0
	for i := 0; i < len(f.code); i++ {
		one := &f.code[i]
		takes, gives, plain := one.operands()
		if !plain {
			f.endStretch(-1)
			f.stack, f.checked = f.stack[:0], 0
			continue
		}
		if one.op == opLocalGet && one.value == stackPointer {
			pushed, last := pointerAt(f.code, i)
			f.stack = append(f.stack, pushed)
			i = last
			continue
		}
		operand := f.stack.replace(takes, gives)
		if one.op >= opLoadFirst && one.op <= opStoreLast && operand.from >= 0 {
			f.noteAccess(operand, i)
		}
		if (one.op == opLocalTee || one.op == opLocalSet) && one.value == stackPointer {
			f.pointerSet(i)
		}
	}
	f.endStretch(-1)
}

// operands is the operand stack of straight-line code.
type operands []address

// replace pops operands and pushes results. It returns the last one popped: the address of a load
// or store.
func (s *operands) replace(takes, gives int) address {
	last := address{from: -1}
	for range takes {
		last = address{from: -1}
		if n := len(*s) - 1; n >= 0 {
			last, *s = (*s)[n], (*s)[:n]
		}
	}
	for range gives {
		*s = append(*s, address{from: -1})
	}
	return last
}

// pointerAt returns the operand that starts with pushing local 1 at i, and its last instruction.
func pointerAt(code []instruction, i int) (address, int) {
	if i+4 < len(code) && code[i+1].op == opI64ExtendU && code[i+2].op == opI64Const &&
		code[i+3].op == opI64Add && code[i+4].op == opI32WrapI64 {
		if plus := code[i+2].value; plus >= 0 && plus < maxFrame {
			return address{from: i, plus: plus, wraps: true}, i + 4
		}
	}
	return address{from: i}, i
}

// noteAccess records a load or store, and folds the added constant into its offset.
func (f *folder) noteAccess(a address, by int) {
	one := &f.code[by]
	offset := uint64(one.value) + uint64(a.plus)
	if offset >= maxFrame {
		return
	}
	if a.wraps {
		f.remove(a.from+1, a.from+4)
		f.setValue(by, int64(offset))
	}
	f.accesses = append(f.accesses, access{a.from, by, offset, offset + uint64(accessSizes[one.op-opLoadFirst])})
}

// remove removes the instructions from first to last.
func (f *folder) remove(first, last int) {
	for i := first; i <= last; i++ {
		f.code[i].removed = true
	}
	f.changed = true
}

// setValue gives an instruction another index or offset.
func (f *folder) setValue(i int, value int64) {
	f.code[i].value, f.code[i].changed = value, true
	f.changed = true
}

// pointerSet ends the stretch at instruction i, which sets local 1. If i lowers it by a constant,
// the accesses before may count from the lower pointer.
func (f *folder) pointerSet(i int) {
	less := int64(0)
	if i >= 3 && f.code[i].op == opLocalTee && f.code[i-1].op == opI32Sub && f.code[i-2].op == opI32Const &&
		f.code[i-3].op == opLocalGet && f.code[i-3].value == stackPointer {
		less = f.code[i-2].value
	}
	if less <= 0 || less >= maxFrame {
		f.endStretch(-1)
		f.checked = 0
	} else {
		f.endStretch(i)
	}
	for k := range f.stack {
		f.stack[k].from = -1 // they come from the old pointer
	}
}

// endStretch inserts the code for the stretch. If an instruction that lowers local 1 is given, its
// accesses count from the lower pointer.
func (f *folder) endStretch(lowers int) {
	defer func() { f.accesses = f.accesses[:0] }()
	less := uint64(0)
	if lowers >= 0 {
		less = uint64(f.code[lowers-2].value)
	}
	if len(f.accesses) == 0 {
		f.checked = 0
		return
	}
	first, most := f.accesses[0].from, uint64(0)
	for _, a := range f.accesses {
		first, most = min(first, a.from), max(most, a.end)
	}
	var before []byte
	base := uint32(stackPointer)
	if less > 0 && f.checked < most {
		base, f.usesNewBase = f.newBase, true
		before = append(before, opLocalGet, stackPointer, opI32Const)
		before = appendSigned(before, int64(less))
		before = binary.AppendUvarint(append(before, opI32Sub, opLocalSet), uint64(base))
		f.rebase(lowers, less)
	} else {
		less = 0
	}
	if f.accesses[0].end < most && f.checked < most {
		before = binary.AppendUvarint(append(before, opLocalGet), uint64(base))
		before = append(before, opI32Load8U, 0)
		before = binary.AppendUvarint(before, most+less-1)
		before = append(before, opDrop)
	}
	f.checked = 0
	if less > 0 {
		f.checked = most + less
	}
	if len(before) > 0 {
		f.insertions = append(f.insertions, insertion{first, before})
		f.changed = true
	}
}

// rebase makes the accesses of the stretch, and the instruction that lowers local 1, use the new
// local.
func (f *folder) rebase(lowers int, less uint64) {
	for _, a := range f.accesses {
		f.setValue(a.from, int64(f.newBase))
		f.setValue(a.by, int64(a.offset+less))
	}
	f.setValue(lowers-3, int64(f.newBase))
	f.remove(lowers-2, lowers-1)
}

// appendSigned appends a number in signed LEB128.
func appendSigned(b []byte, v int64) []byte {
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}
