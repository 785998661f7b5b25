package merge

import (
	"encoding/binary"
	"fmt"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// Opcodes that are read or written outside of bodies, or compared with.
const (
	opUnreachable  = 0x00
	opEnd          = 0x0b
	opCall         = 0x10
	opCallIndirect = 0x11
	opLocalGet     = 0x20
	opGlobalGet    = 0x23
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opI32Mul       = 0x6c
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64Mul       = 0x7e
	opRefNull      = 0xd0
	opRefFunc      = 0xd2
	opPrefixFC     = 0xfc
	opPrefixFD     = 0xfd

	fcMemoryInit = 8
	fcDataDrop   = 9
	fcTableInit  = 12
	fcElemDrop   = 13
	fdV128Const  = 12
)

// constant is the value of an initial expression.
type constant struct {
	value     byte   // type
	low, high uint64 // bits; of a reference, low is the function of the output, or null
}

// null is the bits of a null reference, and as an item of an element segment its lower half.
const null = 1<<64 - 1

// constant reads an expression and computes it. That it can be is why nothing of the output refers
// to globals before it runs: globals that a module may refer to are immutable and have values that
// are known.
func (m *merger) constant(mod *module, r *reader, want byte) constant {
	var stack []constant
	push := func(value byte, bits uint64) { stack = append(stack, constant{value: value, low: bits}) }
	for {
		switch op := r.Octet(); {
		case r.Bad:
			return constant{}
		case op == opEnd:
			if len(stack) != 1 || stack[0].value != want {
				r.refuse(invalid("an initial value is not one %s", valueName(want)))
				return constant{}
			}
			return stack[0]
		case op == opI32Const:
			push(typeI32, uint64(uint32(r.Signed())))
		case op == opI64Const:
			push(typeI64, uint64(r.Long()))
		case op == opF32Const:
			push(typeF32, uint64(binary.LittleEndian.Uint32(r.take(4))))
		case op == opF64Const:
			push(typeF64, binary.LittleEndian.Uint64(r.take(8)))
		case op == opPrefixFD && r.Number() == fdV128Const:
			b := r.take(16)
			stack = append(stack, constant{typeV128, binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])})
		case op == opGlobalGet:
			stack = append(stack, m.constantGlobal(mod, r))
		case op == opRefNull:
			t := r.Octet()
			r.refuse(checkReferenceType(t))
			push(t, null)
		case op == opRefFunc:
			push(typeFuncref, uint64(mod.declare(r)))
		case op >= opI32Add && op <= opI32Mul:
			stack = compute(r, stack, typeI32, op-opI32Add)
		case op >= opI64Add && op <= opI64Mul:
			stack = compute(r, stack, typeI64, op-opI64Add)
		default:
			r.refuse(part(fmt.Sprintf("opcode 0x%02x in an initial value", op)))
		}
	}
}

// take reads n bytes. After an error they are zeros.
func (r *reader) take(n int) []byte {
	rest := r.Rest
	if r.Skip(n); r.Bad {
		return make([]byte, n)
	}
	return rest[:n]
}

// declare reads the index of a function outside of bodies, and returns that of the output.
func (mod *module) declare(r *reader) uint32 {
	n := r.index(len(mod.functions), "function")
	if r.Bad {
		return 0
	}
	mod.declared[n] = true
	return mod.functions[n]
}

// constantGlobal reads the index of a global and returns its value.
func (m *merger) constantGlobal(mod *module, r *reader) constant {
	n := r.index(len(mod.globals), "global")
	if r.Bad {
		return constant{}
	}
	g := m.globals[mod.globals[n]]
	if g.mutable {
		r.refuse(invalid("an initial value depends on global %d, which is mutable", n))
	}
	return g.initial
}

// compute adds, subtracts or multiplies the last two values.
func compute(r *reader, stack []constant, value, operation byte) []constant {
	n := len(stack)
	if n < 2 || stack[n-1].value != value || stack[n-2].value != value {
		r.refuse(invalid("an initial value computes with what is no %s", valueName(value)))
		return nil
	}
	x, y := &stack[n-2], stack[n-1].low
	switch operation {
	case 0:
		x.low += y
	case 1:
		x.low -= y
	case 2:
		x.low *= y
	}
	if value == typeI32 {
		x.low = uint64(uint32(x.low))
	}
	return stack[:n-1]
}

// appendTo appends the instruction that makes the constant.
func (c constant) appendTo(out []byte, m *merger) []byte {
	switch c.value {
	case typeI32:
		return appendSigned(append(out, opI32Const), int64(int32(c.low)))
	case typeI64:
		return appendSigned(append(out, opI64Const), int64(c.low))
	case typeF32:
		return binary.LittleEndian.AppendUint32(append(out, opF32Const), uint32(c.low))
	case typeF64:
		return binary.LittleEndian.AppendUint64(append(out, opF64Const), c.low)
	case typeV128:
		out = binary.LittleEndian.AppendUint64(append(out, opPrefixFD, fdV128Const), c.low)
		return binary.LittleEndian.AppendUint64(out, c.high)
	}
	if c.low == null {
		return append(out, opRefNull, c.value)
	}
	return binary.AppendUvarint(append(out, opRefFunc), uint64(m.alias(uint32(c.low))))
}

// appendSigned appends a signed number.
func appendSigned(out []byte, v int64) []byte {
	for {
		b := byte(v & 0x7f)
		if v >>= 7; v == 0 && b&0x40 == 0 || v == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

// valueName is what the text format calls a value type.
func valueName(t byte) string {
	names := map[byte]string{typeI32: "i32", typeI64: "i64", typeF32: "f32", typeF64: "f64", typeV128: "v128",
		typeFuncref: "funcref", typeExternref: "externref"}
	if name, ok := names[t]; ok {
		return name
	}
	return fmt.Sprintf("0x%02x", t)
}

// typeText writes the encoded type of a function as text.
func typeText(encoded string) string {
	r := format.Reader{Rest: []byte(encoded[1:])}
	list := func(types []byte) string {
		text := ""
		for n, t := range types {
			if n > 0 {
				text += " "
			}
			if n == maxShown {
				return text + "…"
			}
			text += valueName(t)
		}
		return text
	}
	return fmt.Sprintf("(%s) -> (%s)", list(r.Bytes()), list(r.Bytes()))
}

// maxShown bounds how many parameters or results a message has.
const maxShown = 20
