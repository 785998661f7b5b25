package verify

// value is a symbolic value: an instruction and the ids of its operands. Equal values of one
// segment have the same id.
type value struct {
	op      uint16
	a, b, c int32
	imm     int64
}

// Operations that are not instructions.
const (
	opSymbol = 0x200 + iota // an unknown value that both sides share
	opOffset                // a plus imm, modulo 2³²
	opPoison                // a value of which nothing is known
)

// values are the values of a segment, by id.
type values struct {
	all     []value
	numbers map[value]int32
	alias   map[int32]int32 // ids that are known to be equal at the start
	stack   map[int32]bool  // ids of symbols that are stack pointers
	count   int64
}

func (v *values) reset() {
	v.all, v.count = v.all[:0], 0
	if v.numbers == nil || len(v.numbers) > 500 {
		v.numbers = map[value]int32{} // clearing a large one takes longer
	}
	clear(v.numbers)
	if v.alias == nil {
		v.alias, v.stack = map[int32]int32{}, map[int32]bool{}
	}
	clear(v.alias)
	clear(v.stack)
}

func (v *values) number(n value) int32 {
	id, ok := v.numbers[n]
	if !ok {
		id = int32(len(v.all))
		v.all = append(v.all, n)
		v.numbers[n] = id
	}
	if same, ok := v.alias[id]; ok {
		return same
	}
	return id
}

// fresh returns a value that differs from all others.
func (v *values) fresh(op uint16) int32 {
	v.count++
	return v.number(value{op: op, imm: v.count})
}

func (v *values) constant(op uint16, imm int64) int32 { return v.number(value{op: op, imm: imm}) }

// isConstant returns the number if a value is a constant i32.
func (v *values) isConstant(id int32) (int64, bool) {
	n := v.all[id]
	return n.imm, n.op == opI32Const
}

// plus returns an i32 plus a constant.
func (v *values) plus(id int32, more int64) int32 {
	switch n := v.all[id]; n.op {
	case opI32Const:
		return v.constant(opI32Const, int64(int32(n.imm+more)))
	case opOffset:
		id, more = n.a, n.imm+more
	}
	if more = int64(int32(more)); more == 0 {
		return id
	}
	return v.number(value{op: opOffset, a: id, imm: more})
}

// binary and unary return the result of an instruction.
func (v *values) binary(op uint16, a, b int32) int32 {
	switch op {
	case opI32Add:
		if c, ok := v.isConstant(b); ok {
			return v.plus(a, c)
		}
	case opI32Sub:
		if c, ok := v.isConstant(b); ok {
			return v.plus(a, -c)
		}
	}
	return v.number(value{op: op, a: a, b: b})
}

func (v *values) unary(op uint16, a int32) int32 {
	if op == opWrap {
		switch n := v.all[a]; {
		case n.op == opExtend:
			return n.a
		case n.op == opI64Add && v.all[n.a].op == opExtend && v.all[n.b].op == opI64Const:
			return v.plus(v.all[n.a].a, int64(int32(v.all[n.b].imm)))
		}
	}
	return v.number(value{op: op, a: a})
}

// place is an address: relative to a stack pointer without wrapping around, any other as it is.
type place struct {
	root int32
	at   int64
}

func (v *values) place(address int32, offset int64) place {
	if n := v.all[address]; n.op == opOffset && v.stack[n.a] {
		return place{n.a, n.imm + offset}
	}
	return place{address, offset}
}

// opposites maps comparisons of integers to their negations, which stand for both.
var opposites = map[uint16]uint16{
	0x47: 0x46, 0x4e: 0x48, 0x4f: 0x49, 0x4c: 0x4a, 0x4d: 0x4b, 0x52: 0x51, 0x59: 0x53, 0x5a: 0x54, 0x57: 0x55, 0x58: 0x56,
}

// condition returns the value that a decision tests for 0, and whether the test is negated.
func (v *values) condition(id int32) (asked int32, not bool) {
	for {
		n := v.all[id]
		switch {
		case n.op == opI32Eqz:
			id, not = n.a, !not
		case n.op == opI64Eqz && v.all[n.a].op == opExtend:
			id, not = v.all[n.a].a, !not
		default:
			if op, ok := opposites[n.op]; ok {
				return v.number(value{op: op, a: n.a, b: n.b}), !not
			}
			return id, not
		}
	}
}
