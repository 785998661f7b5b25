package compile

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// goTitle is what the content of a custom section of Go's linker begins with.
const goTitle = "\x0ago:buildid"

// isGo says whether a module comes from Go's linker.
func isGo(sections []format.Section) bool {
	return slices.ContainsFunc(sections, func(s format.Section) bool {
		return s.ID == format.SectionCustom && bytes.HasPrefix(s.Body, []byte(goTitle))
	})
}

// fold rewrites the functions of a module of Go's so that wazero has fewer addresses to check. wazero compares each
// address that it has not yet compared with the end of memory, and each comparison brings 50 bytes of
// machine code; it tells addresses apart by the value that an offset is added to. Go has one such value for most of
// what a function touches, the stack pointer in local 1, and hides it: it adds the offset by instructions of its own, and
// computes the pointer anew for every call. So, in a function whose only parameter and first local are i32:
//
//   - "local 1, extended, plus a constant, wrapped" as an address becomes local 1, and the constant an offset;
//   - the pointer that a call is going to have is computed before what comes before it on a straight way, into a new
//     local, and its addresses count from there;
//   - where several addresses follow on a straight way, one that reaches as far as any of them is loaded first, and
//     dropped, so that the others are known to be inside.
//
// What a valid module does stays the same as long as a stack frame does not reach around the end of the address space,
// and an invalid one stays invalid: what is put in place of valid instructions is as valid, wherever they are.
// Functions with an instruction that is not known stay as they are.
func fold(sections []format.Section) ([]format.Section, bool) {
	m, ok := readGoModule(sections)
	if !ok {
		return nil, false
	}
	return m.fold(sections)
}

// fold rewrites the functions of the module, which has these sections.
func (m *goModule) fold(sections []format.Section) ([]format.Section, bool) {
	i := slices.IndexFunc(sections, func(s format.Section) bool { return s.ID == format.SectionCode })
	if i < 0 {
		return nil, false
	}
	r := format.Reader{Rest: sections[i].Body}
	count := r.Number()
	if r.Bad || uint64(count) != uint64(len(m.functions)) {
		return nil, false
	}
	out := binary.AppendUvarint(make([]byte, 0, len(sections[i].Body)), uint64(count))
	var f folder
	for _, t := range m.functions {
		body := r.Bytes()
		if m.shaped[t] {
			if m.serves {
				body = m.straighten(body)
			}
			body = f.fold(body)
		}
		out = binary.AppendUvarint(out, uint64(len(body)))
		out = append(out, body...)
	}
	if r.Bad || len(r.Rest) > 0 {
		return nil, false
	}
	all := slices.Clone(sections)
	all[i] = format.NewSection(format.SectionCode, out)
	return all, true
}

// The local that holds the stack pointer, and what is understood of offsets and frames.
const (
	stackPointer = 1
	maxFrame     = 1 << 30
)

// folder rewrites functions, one after the other.
type folder struct {
	code   []instruction
	stack  []address // the operands that this straight way has pushed
	ahead  []ahead   // what is put before instructions, in their order
	spare  uint32    // the new local
	used   bool      // it is
	folded bool      // something is

	// Of the stretch in which local 1 stays the same:
	accesses []access
	known    uint64 // bytes from local 1 on that have been checked
}

// ahead is code to put before an instruction.
type ahead struct {
	of   int
	code []byte
}

// address is an operand. One that is no address by the stack pointer has the instruction -1.
type address struct {
	from  int   // the instruction that pushes local 1
	plus  int64 // what is added to it
	wraps bool  // by instructions, which end with wrapping
}

// access is a load or store at an address by the stack pointer.
type access struct {
	from, by int    // the instructions that push local 1, and that load or store
	offset   uint64 // from local 1
	end      uint64 // offset and size
}

// fold returns a body that does the same.
func (f *folder) fold(body []byte) []byte {
	const i32 = 0x7f
	r := format.Reader{Rest: body}
	groups := r.Number()
	head := len(body) - len(r.Rest)
	locals, first := uint64(1), byte(0)
	for g := range groups {
		n, kind := r.Number(), r.Octet()
		if g == 0 && n > 0 {
			first = kind
		}
		if locals += uint64(n); r.Bad {
			return body
		}
	}
	start := len(body) - len(r.Rest)
	if first != i32 || locals >= math.MaxInt32 {
		return body
	}
	code, ok := decode(f.code[:0], body, start)
	if !ok {
		return body
	}
	f.code, f.ahead, f.spare, f.used, f.folded = code, f.ahead[:0], uint32(locals), false, false
	f.walk()
	if !f.folded {
		return body
	}
	out := make([]byte, 0, len(body)+16)
	if f.used {
		out = binary.AppendUvarint(out, uint64(groups)+1)
		out = append(append(out, body[head:start]...), 1, i32)
	} else {
		out = append(out, body[:start]...)
	}
	return f.write(out, body)
}

// write appends the instructions as they are now.
func (f *folder) write(out, body []byte) []byte {
	next := f.ahead
	for i := range f.code {
		if len(next) > 0 && next[0].of == i {
			out, next = append(out, next[0].code...), next[1:]
		}
		switch one := &f.code[i]; {
		case one.gone:
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

// walk goes through the instructions. Where control may pass elsewhere nothing is known any more.
func (f *folder) walk() {
	f.stack, f.accesses, f.known = f.stack[:0], f.accesses[:0], 0
	for i := 0; i < len(f.code); i++ {
		one := &f.code[i]
		takes, gives, plain := one.operands()
		if !plain {
			f.close(-1)
			f.stack, f.known = f.stack[:0], 0
			continue
		}
		if one.op == opLocalGet && one.value == stackPointer {
			pushed, last := pointerAt(f.code, i)
			f.stack = append(f.stack, pushed)
			i = last
			continue
		}
		var operand address
		for range takes {
			operand = f.pop() // in the end the lowest: the address of a load or store
		}
		if one.op >= opLoadFirst && one.op <= opStoreLast && operand.from >= 0 {
			f.touch(operand, i)
		}
		for range gives {
			f.stack = append(f.stack, address{from: -1})
		}
		if (one.op == opLocalTee || one.op == opLocalSet) && one.value == stackPointer {
			f.move(i)
		}
	}
	f.close(-1)
}

func (f *folder) pop() address {
	if len(f.stack) == 0 {
		return address{from: -1}
	}
	last := f.stack[len(f.stack)-1]
	f.stack = f.stack[:len(f.stack)-1]
	return last
}

// pointerAt is the operand that begins with pushing local 1 at i, and the instruction that completes it.
func pointerAt(code []instruction, i int) (address, int) {
	if i+4 < len(code) && code[i+1].op == opI64ExtendU && code[i+2].op == opI64Const &&
		code[i+3].op == opI64Add && code[i+4].op == opI32WrapI64 {
		if plus := code[i+2].value; plus >= 0 && plus < maxFrame {
			return address{from: i, plus: plus, wraps: true}, i + 4
		}
	}
	return address{from: i}, i
}

// touch notes a load or store, and adds to its offset what instructions added.
func (f *folder) touch(a address, by int) {
	one := &f.code[by]
	offset := uint64(one.value) + uint64(a.plus)
	if offset >= maxFrame {
		return
	}
	if a.wraps {
		f.drop(a.from+1, a.from+4)
		f.change(by, int64(offset))
	}
	f.accesses = append(f.accesses, access{a.from, by, offset, offset + uint64(accessSizes[one.op-opLoadFirst])})
}

// drop removes the instructions from first to last.
func (f *folder) drop(first, last int) {
	for i := first; i <= last; i++ {
		f.code[i].gone = true
	}
	f.folded = true
}

// change gives an instruction another index or offset.
func (f *folder) change(i int, value int64) {
	f.code[i].value, f.code[i].changed = value, true
	f.folded = true
}

// move ends the stretch because instruction i sets local 1. When it sets it to what it was less a constant, addresses before
// it may count from there.
func (f *folder) move(i int) {
	less := int64(0)
	if i >= 3 && f.code[i].op == opLocalTee && f.code[i-1].op == opI32Sub && f.code[i-2].op == opI32Const &&
		f.code[i-3].op == opLocalGet && f.code[i-3].value == stackPointer {
		less = f.code[i-2].value
	}
	if less <= 0 || less >= maxFrame {
		f.close(-1)
		f.known = 0
	} else {
		f.close(i)
	}
	for k := range f.stack {
		f.stack[k].from = -1 // by another pointer
	}
}

// close writes what is to be written for the stretch. With an instruction that lowers local 1, its addresses
// count from the lower pointer.
func (f *folder) close(lowers int) {
	defer func() { f.accesses = f.accesses[:0] }()
	less := uint64(0)
	if lowers >= 0 {
		less = uint64(f.code[lowers-2].value)
	}
	if len(f.accesses) == 0 {
		f.known = 0
		return
	}
	first, most := f.accesses[0].from, uint64(0)
	for _, a := range f.accesses {
		first, most = min(first, a.from), max(most, a.end)
	}
	var before []byte
	base := uint32(stackPointer)
	if less > 0 && f.known < most {
		base, f.used = f.spare, true
		before = append(before, opLocalGet, stackPointer, opI32Const)
		before = appendSigned(before, int64(less))
		before = binary.AppendUvarint(append(before, opI32Sub, opLocalSet), uint64(base))
		f.lower(lowers, less)
	} else {
		less = 0
	}
	if f.accesses[0].end < most && f.known < most {
		before = binary.AppendUvarint(append(before, opLocalGet), uint64(base))
		before = append(before, opI32Load8U, 0)
		before = binary.AppendUvarint(before, most+less-1)
		before = append(before, opDrop)
	}
	f.known = 0
	if less > 0 {
		f.known = most + less
	}
	if len(before) > 0 {
		f.ahead = append(f.ahead, ahead{first, before})
		f.folded = true
	}
}

// lower makes the addresses of the stretch, and the instruction that lowers local 1, use the new local.
func (f *folder) lower(lowers int, less uint64) {
	for _, a := range f.accesses {
		f.change(a.from, int64(f.spare))
		f.change(a.by, int64(a.offset+less))
	}
	f.change(lowers-3, int64(f.spare))
	f.drop(lowers-2, lowers-1)
}

// appendSigned appends a signed number.
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
