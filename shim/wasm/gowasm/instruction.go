package gowasm

import "github.com/sunaba-project/sunaba/shim/wasm/format"

// Opcodes that the rewriting looks at, and the bounds of ranges of them.
const (
	opUnreachable = 0x00
	opNop         = 0x01
	opBlock       = 0x02
	opLoop        = 0x03
	opIf          = 0x04
	opElse        = 0x05
	opEnd         = 0x0b
	opBr          = 0x0c
	opBrIf        = 0x0d
	opBrTable     = 0x0e
	opReturn      = 0x0f
	opCall        = 0x10
	opCallOf      = 0x11 // call_indirect
	opDrop        = 0x1a
	opSelect      = 0x1b
	opLocalGet    = 0x20
	opLocalSet    = 0x21
	opLocalTee    = 0x22
	opGlobalGet   = 0x23
	opGlobalSet   = 0x24
	opLoadFirst   = 0x28
	opI32Load     = 0x28
	opI64Load     = 0x29
	opI32Load8U   = 0x2d
	opLoadLast    = 0x35
	opStoreFirst  = 0x36
	opI64Store    = 0x37
	opStoreLast   = 0x3e
	opMemorySize  = 0x3f
	opMemoryGrow  = 0x40
	opI32Const    = 0x41
	opI32Eqz      = 0x45
	opI32LeU      = 0x4d
	opI64Eqz      = 0x50
	opI64Const    = 0x42
	opF32Const    = 0x43
	opF64Const    = 0x44
	opI32Add      = 0x6a
	opI32Sub      = 0x6b
	opI64Add      = 0x7c
	opI32WrapI64  = 0xa7
	opI64ExtendU  = 0xad
	opNumericLast = 0xc4
	opPrefixFC    = 0xfc
)

// emptyType is the type of a construct without parameters and results, as a signed number.
const emptyType = -0x40

// accessSizes are the sizes in bytes of the loads and stores, from opLoadFirst on.
var accessSizes = [...]uint8{
	4, 8, 4, 8, 1, 1, 2, 2, 1, 1, 2, 2, 4, 4, // loads
	4, 8, 4, 8, 1, 2, 1, 2, 4, // stores
}

// instruction is one instruction of a function's body.
type instruction struct {
	op      byte
	at, end int32  // its bytes in the body
	value   int64  // index, constant, offset or type
	align   uint32 // of a load or store

	changed, removed bool
}

// decode appends the instructions of a body's expression, which starts at byte at, to into. It
// returns false for an instruction that it does not know.
func decode(into []instruction, body []byte, at int) ([]instruction, bool) {
	r := format.Reader{Rest: body[at:]}
	for len(r.Rest) > 0 {
		i := instruction{at: int32(len(body) - len(r.Rest)), op: r.Octet()}
		if !immediates(&r, &i) || r.Bad {
			return nil, false
		}
		i.end = int32(len(body) - len(r.Rest))
		into = append(into, i)
	}
	return into, len(into) > 0 && into[len(into)-1].op == opEnd
}

// immediates reads the immediates of an instruction. Vector, atomic, reference and exception
// instructions are not known.
func immediates(r *format.Reader, i *instruction) bool {
	switch op := i.op; {
	case op == opUnreachable || op == opNop || op == opElse || op == opEnd || op == opReturn || op == opDrop || op == opSelect:
	case op >= opBlock && op <= opIf:
		i.value = r.Long() // a type, or its index
	case op == opBr || op == opBrIf || op == opCall || op >= opLocalGet && op <= opGlobalSet:
		i.value = int64(r.Number())
	case op == opBrTable:
		for range uint64(r.Number()) + 1 {
			if r.Number(); r.Bad {
				return false
			}
		}
	case op == opCallOf:
		i.value = int64(r.Number()) // the type
		r.Number()
	case op >= opLoadFirst && op <= opStoreLast:
		i.align, i.value = r.Number(), int64(r.Number())
		return i.align <= 3 // a larger one may name a memory
	case op == opMemorySize || op == opMemoryGrow:
		r.Octet()
	case op == opI32Const || op == opI64Const:
		i.value = r.Long()
	case op == opF32Const:
		r.Skip(4)
	case op == opF64Const:
		r.Skip(8)
	case op > opF64Const && op <= opNumericLast:
	case op == opPrefixFC:
		return bulk(r)
	default:
		return false
	}
	return true
}

// bulk reads what follows the prefix 0xfc: saturating conversions, and operations on bulk memory
// and tables.
func bulk(r *format.Reader) bool {
	switch n := r.Number(); {
	case n <= 7:
	case n == 9 || n == 11 || n == 13 || n >= 15 && n <= 17:
		r.Number()
	case n <= 14:
		r.Number()
		r.Number()
	default:
		return false
	}
	return true
}

// operands returns how many operands a plain instruction pops and pushes. plain is false for one
// that branches or calls, and for one that the analyses do not need.
func (i *instruction) operands() (pops, pushes int, plain bool) {
	switch op := i.op; {
	case op == opNop:
		return 0, 0, true
	case op == opDrop || op == opLocalSet || op == opGlobalSet:
		return 1, 0, true
	case op == opSelect:
		return 3, 1, true
	case op == opLocalGet || op == opGlobalGet || op == opMemorySize || op >= opI32Const && op <= opF64Const:
		return 0, 1, true
	case op == opLocalTee || op >= opLoadFirst && op <= opLoadLast:
		return 1, 1, true
	case op >= opStoreFirst && op <= opStoreLast:
		return 2, 0, true
	case op > opF64Const && op <= opNumericLast:
		if unary(op) {
			return 1, 1, true
		}
		return 2, 1, true
	}
	return 0, 0, false
}

// unary says whether a numeric instruction has one operand.
func unary(op byte) bool {
	switch {
	case op == 0x45 || op == 0x50: // eqz
		return true
	case op >= 0x67 && op <= 0x69, op >= 0x79 && op <= 0x7b: // clz, ctz, popcnt
		return true
	case op >= 0x8b && op <= 0x91, op >= 0x99 && op <= 0x9f: // abs to sqrt
		return true
	}
	return op >= opI32WrapI64
}
