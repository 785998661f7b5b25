package verify

import (
	"errors"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// Opcodes that have a meaning here. An opcode behind the prefix 0xfc is bulkBase plus its number.
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
	opCallOf      = 0x11
	opDrop        = 0x1a
	opSelect      = 0x1b
	opLocalGet    = 0x20
	opLocalSet    = 0x21
	opLocalTee    = 0x22
	opGlobalGet   = 0x23
	opGlobalSet   = 0x24
	opLoadFirst   = 0x28
	opI64Load     = 0x29
	opLoadLast    = 0x35
	opStoreFirst  = 0x36
	opStoreLast   = 0x3e
	opMemorySize  = 0x3f
	opMemoryGrow  = 0x40
	opI32Const    = 0x41
	opI64Const    = 0x42
	opF32Const    = 0x43
	opF64Const    = 0x44
	opI32Eqz      = 0x45
	opI32GtU      = 0x4b
	opI32LeU      = 0x4d
	opI64Eqz      = 0x50
	opLastCompare = 0x66
	opI32Add      = 0x6a
	opI32Sub      = 0x6b
	opI64Add      = 0x7c
	opWrap        = 0xa7
	opExtend      = 0xad // i64.extend_i32_u
	opLastNumeric = 0xc4
	bulkBase      = 0x100
	opMemoryCopy  = bulkBase + 10
	opMemoryFill  = bulkBase + 11
)

// The value types that are distinguished.
const (
	typeI32 = 0x7f
	typeI64 = 0x7e
)

var errUnknown = errors.New("an instruction is not known")

// instr is one instruction.
type instr struct {
	op     uint16
	value  int64    // index, constant, offset, type of a construct, or depth of a branch
	depths []uint32 // of a table
	exits  []exit   // where a branch leads; where "if" and "else" lead if their code is skipped
}

// exit is the target of a branch: arity operands are kept, above height.
type exit struct{ pc, height, arity int }

// decode reads the expression of a body.
func decode(r *format.Reader) ([]instr, error) {
	code := make([]instr, 0, len(r.Rest)/2+1) // most instructions have an immediate
	for len(r.Rest) > 0 {
		i := instr{op: uint16(r.Octet())}
		if !immediates(r, &i) || r.Bad {
			return nil, errUnknown
		}
		code = append(code, i)
	}
	if r.Bad || len(code) == 0 || code[len(code)-1].op != opEnd {
		return nil, errUnknown
	}
	return code, nil
}

func immediates(r *format.Reader, i *instr) bool {
	switch op := i.op; {
	case op == opBlock || op == opLoop || op == opIf:
		i.value = r.Long()
	case op == opBr || op == opBrIf:
		i.value = int64(r.Number())
	case op == opBrTable:
		n := r.Number()
		for range uint64(n) + 1 {
			if i.depths = append(i.depths, r.Number()); r.Bad {
				return false
			}
		}
	case op == opCall || op >= opLocalGet && op <= opGlobalSet:
		i.value = int64(r.Number())
	case op == opCallOf:
		i.value = int64(r.Number())
		return r.Number() == 0 // the only table
	case op >= opLoadFirst && op <= opStoreLast:
		align := r.Number()
		i.value = int64(r.Number())
		return align <= 3
	case op == opMemorySize || op == opMemoryGrow:
		return r.Octet() == 0
	case op == opI32Const:
		i.value = int64(int32(r.Long()))
	case op == opI64Const:
		i.value = r.Long()
	case op == opF32Const, op == opF64Const:
		for n := range 4 << (op - opF32Const) {
			i.value |= int64(r.Octet()) << (8 * n)
		}
	case op == 0xfc:
		n := r.Number()
		i.op = bulkBase + uint16(n)
		switch {
		case n <= 7:
		case n == 10:
			to, from := r.Octet(), r.Octet()
			return to == 0 && from == 0
		case n == 11:
			return r.Octet() == 0
		default:
			return false
		}
	case op <= opNop, op == opElse, op == opEnd, op == opReturn, op == opDrop, op == opSelect, op > opF64Const && op <= opLastNumeric:
	default:
		return false
	}
	return true
}

// isUnary says whether a numeric instruction takes one operand.
func isUnary(op uint16) bool {
	switch {
	case op == opI32Eqz, op == opI64Eqz, op >= 0x67 && op <= 0x69, op >= 0x79 && op <= 0x7b, op >= 0x8b && op <= 0x91, op >= 0x99 && op <= 0x9f:
		return true
	}
	return op >= opWrap
}

// mayTrap says whether a numeric instruction traps for some operands.
func mayTrap(op uint16) bool {
	return op >= 0x6d && op <= 0x70 || op >= 0x7f && op <= 0x82 || op >= 0xa8 && op <= 0xab || op >= 0xae && op <= 0xb1
}

// sizes are the sizes in bytes of the loads and stores, from opLoadFirst on.
var sizes = [...]int64{4, 8, 4, 8, 1, 1, 2, 2, 1, 1, 2, 2, 4, 4, 4, 8, 4, 8, 1, 2, 1, 2, 4}
