package gowasm

import (
	"bytes"
	"encoding/binary"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// jumping writes functions with basic blocks that jump to each other, as Go's do: a pointer in
// local 3, and in local 5 a count of the executed blocks, which ends the function.
type jumping struct {
	framed
	count int
}

// frame is how far the function lowers the stack pointer.
const frame = 64

// leave returns from the function.
func (j *jumping) leave(unwinds int64) {
	j.move(-frame)
	j.move(-8)
	j.op(opI32Const, unwinds)
	j.code = append(j.code, opReturn)
}

// branch leaves so many constructs of a block, and those around the blocks.
func (j *jumping) branch(op byte, block, nest, outer int) {
	j.code = binary.AppendUvarint(append(j.code, op), uint64(j.count-1-block+nest+outer))
}

// jump goes to another block, by one of the values that lead there.
func (j *jumping) jump(block, nest int) {
	to := j.rand.IntN(j.count)
	j.op(opI32Const, int64(to+1))
	j.code = append(j.code, opLocalSet, 0)
	j.branch(opBr, block, nest, 0)
}

// condition pushes whether a bit of the sum is set, in one of the ways in which Go's compiler asks.
func (j *jumping) condition() {
	j.get(2)
	j.op(opI64Const, 1<<j.rand.IntN(5))
	j.op(0x83) // i64.and
	j.op(opI64Const, 0)
	j.code = append(j.code, []byte{0x51, 0x52, 0x55, 0x57}[j.rand.IntN(4)]) // eq, ne, gt_s, le_s
	if j.rand.IntN(2) == 0 {
		j.code = append(j.code, opI32Eqz)
	}
}

func (j *jumping) iff() { j.op(opIf, emptyType) }

// part is a part of a block.
func (j *jumping) part(block int) {
	switch n := j.rand.IntN(15); {
	case n < 6:
		j.straightPart(n, block)
	case n < 12:
		j.branchingPart(n, block)
	case n == 12: // a word of the frame is a pointer, and may be another one behind a store to an array
		j.useWord()
		j.element()
		j.useWord()
	default:
		j.statement(1)
	}
}

// straightPart is a part of one of the first kinds.
func (j *jumping) straightPart(kind, block int) {
	switch kind {
	case 0: // a call that may unwind
		j.move(8)
		j.get(stackPointer)
		j.op(opI64Const, int64(block+1))
		j.memory(0x37, 0)
		j.op(opI32Const, 0)
		j.code = append(j.code, opCall, 1, opGlobalGet, 0, opLocalSet, stackPointer)
		j.branch(opBrIf, block, 0, 1)
	case 1:
		j.condition()
		j.iff()
		j.jump(block, 1)
		j.op(opEnd)
	case 2:
		j.use()
	case 3:
		j.point()
	case 4:
		j.useWord()
	case 5: // a word of the frame is a pointer, and another one
		j.setWord()
		j.useWord()
		j.setWord()
		j.useWord()
	}
}

// branchingPart is a part of one of the other kinds.
func (j *jumping) branchingPart(kind, block int) {
	switch kind {
	case 6, 7:
		j.condition()
		j.iff()
		for range j.rand.IntN(4) {
			if j.rand.IntN(2) == 0 {
				j.condition()
				j.code = append(j.code, opBrIf, 0)
			}
			j.simple(block)
		}
		if j.rand.IntN(3) == 0 {
			j.op(opElse)
			j.simple(block)
		}
		j.op(opEnd)
	case 8: // a pointer that is another one on some ways
		j.use()
		j.condition()
		j.iff()
		j.point()
		if j.rand.IntN(2) == 0 {
			j.condition()
			j.code = append(j.code, opBrIf, 0)
		}
		j.use()
		j.op(opEnd)
		j.use()
	case 9:
		j.checked(block)
	case 10: // a condition that is made a value first
		j.condition()
		j.op(opI64ExtendU)
		j.op(opI64Eqz)
		for range j.rand.IntN(3) {
			j.op(opI32Eqz)
		}
		j.iff()
		j.jump(block, 1)
		j.op(opEnd)
	case 11: // what lies behind the end of memory is read on no way
		j.op(opI64Const, 64<<10-8)
		j.code = append(j.code, opLocalSet, 3)
		j.get(3)
		j.op(opI32WrapI64)
		j.memory(opI64Load, 0)
		j.sum()
		j.op(opI32Const, 0)
		j.iff()
		j.get(3)
		j.op(opI32WrapI64)
		j.memory(opI64Load, 8)
		j.sum()
		j.op(opEnd)
		j.point()
	}
}

// element stores to an element of an array in the frame, whose index is a variable.
func (j *jumping) element() {
	j.get(stackPointer)
	j.op(opI64ExtendU)
	j.get(2)
	j.op(opI64Const, 1)
	j.op(0x83) // i64.and
	j.op(opI64Const, 3)
	j.op(0x86) // i64.shl
	j.op(opI64Add)
	j.op(opI32WrapI64)
	j.op(opI64Const, int64(j.rand.IntN(0x4000)))
	j.memory(opI64Store, 0)
}

// checked uses what lies behind a pointer after a check that it is not nil, as Go's compiler
// writes it, and more of it.
func (j *jumping) checked(block int) {
	words := j.rand.IntN(2) == 0
	pointer := func() {
		if words {
			j.get(stackPointer)
			j.memory(opI64Load, 8)
		} else {
			j.get(3)
		}
	}
	pointer()
	j.op(opI64Eqz)
	j.iff()
	j.move(8)
	j.get(stackPointer)
	j.op(opI64Const, int64(block+1))
	j.memory(opI64Store, 0)
	j.op(opI32Const, 0)
	j.code = append(j.code, opCall, 2, opGlobalGet, 0, opLocalSet, stackPointer)
	j.branch(opBrIf, block, 1, 1)
	j.op(opEnd)
	for range 1 + j.rand.IntN(4) {
		pointer()
		j.op(opI32WrapI64)
		if offset := j.rand.IntN(64); j.rand.IntN(3) == 0 {
			j.get(2)
			j.memory(opI64Store, offset)
		} else {
			j.memory(opI64Load, offset)
			j.sum()
		}
	}
}

// use adds up what the pointer points to, and point makes it another.
func (j *jumping) use() {
	j.get(3)
	j.op(opI32WrapI64)
	j.memory(opI64Load, j.rand.IntN(64))
	j.sum()
}

func (j *jumping) point() {
	j.get(2)
	j.op(opI64Const, 0x3ff8)
	j.op(0x83)
	j.code = append(j.code, opLocalSet, 3)
}

// useWord and setWord do so with a word of the frame.
func (j *jumping) useWord() {
	j.get(stackPointer)
	j.memory(opI64Load, 8)
	j.op(opI32WrapI64)
	j.memory(opI64Load, j.rand.IntN(64))
	j.sum()
}

func (j *jumping) setWord() {
	j.get(stackPointer)
	j.get(2)
	j.op(opI64Const, 0x3ff8)
	j.op(0x83)
	j.memory(0x37, 8)
}

// simple is a part without calls that unwind.
func (j *jumping) simple(block int) {
	for {
		before := len(j.code)
		j.part(block)
		if !bytes.Contains(j.code[before:], []byte{opCall}) && !bytes.Contains(j.code[before:], []byte{opIf}) {
			return
		}
		j.code = j.code[:before]
	}
}

// build is a module with such a function.
func (j *jumping) build() []byte {
	table := []byte{byte(j.count), 0}
	for n := range j.count {
		table = append(table, byte(n))
	}
	j.code = append([]byte{opGlobalGet, 0, opLocalSet, stackPointer}, opBlock, 0x40, opLoop, 0x40)
	j.code = append(j.code, bytes.Repeat([]byte{opBlock, 0x40}, j.count)...)
	j.code = append(append(j.code, opLocalGet, 0, opBrTable), table...)
	j.op(opEnd)
	for block := range j.count {
		if block == 0 {
			j.begin()
		}
		j.get(5)
		j.op(opI64Const, 1)
		j.op(opI64Add)
		j.code = append(j.code, opLocalTee, 5)
		j.op(opI64Const, 60)
		j.op(0x56) // i64.gt_u
		j.iff()
		j.leave(int64(j.rand.IntN(2)))
		j.op(opEnd)
		if j.rand.IntN(2) == 0 {
			j.use()
		}
		for range j.rand.IntN(8) {
			j.part(block)
		}
		if j.rand.IntN(2) == 0 {
			j.point()
			j.use()
		}
		switch {
		case block == j.count-1:
			j.leave(0)
		case j.rand.IntN(3) == 0:
			j.jump(block, 0)
		}
		j.op(opEnd)
	}
	j.code = append(j.code, opUnreachable, opEnd) // of the outer construct; the end of the loop is that behind the last block
	j.op(opI32Const, 1)
	j.op(opEnd)
	return j.wrap()
}

// begin is what a function with a frame begins with: a larger stack if the address at 16 says so.
func (j *jumping) begin() {
	if j.rand.IntN(2) == 0 {
		j.get(stackPointer)
		j.op(opI32Const, 0)
		j.memory(opI32Load, 16)
		j.op(opI32LeU)
		j.iff()
		j.move(8)
		j.get(stackPointer)
		j.op(opI64Const, 0)
		j.memory(0x37, 0)
		j.op(opI32Const, 0)
		j.code = append(j.code, opCall, 1, opGlobalGet, 0, opLocalSet, stackPointer)
		j.branch(opBrIf, 0, 1, 1)
		j.op(opEnd)
	}
	j.move(frame)
}

// wrap is a module of Go's linker. Its function 0 returns as Go's do, and unwinds when the sum of
// what it was called for says so.
func (j *jumping) wrap() []byte {
	callee := []byte{
		0, opI32Const, 8, opI32Const, 8, opI32Load, 2, 0, opI32Const, 1, opI32Add, 0x36, 2, 0, // counts at 8
		opGlobalGet, 0, opI32Const, 8, opI32Add, opGlobalSet, 0,
		opI32Const, 8, opI32Load, 2, 0, opI32Const, 31, 0x71, opI32Const, 31, 0x46, opEnd, // i32.and, i32.eq
	}
	panics := []byte{0, opGlobalGet, 0, opI32Const, 8, opI32Add, opGlobalSet, 0, opI32Const, 1, opEnd} // unwinds, as sigpanic does
	body := append([]byte{2, 1, 0x7f, 4, 0x7e}, j.code...)
	code := []byte{3}
	for _, b := range [][]byte{callee, panics, body} {
		code = append(binary.AppendUvarint(code, uint64(len(b))), b...)
	}
	pointer := append(appendSigned([]byte{2, 0x7f, 1, opI32Const}, 32<<10), opEnd)
	pointer = append(pointer, 0x7e, 1, opI64Const, 0, opEnd)
	return format.Join([]format.Section{
		format.NewSection(format.SectionCustom, []byte(buildID)),
		format.NewSection(1, []byte{1, 0x60, 1, 0x7f, 1, 0x7f}),
		format.NewSection(2, append([]byte{1, 4}, "host\x0bsock_accept\x00\x00"...)),
		format.NewSection(3, []byte{3, 0, 0, 0}),
		format.NewSection(format.SectionMemory, []byte{1, 0, 1}),
		format.NewSection(6, pointer),
		format.NewSection(7, append(append([]byte{2, 3}, "run\x00\x03"...), "\x03mem\x02\x00"...)),
		format.NewSection(format.SectionCode, code),
		format.NewSection(format.SectionData, j.data()),
	})
}

// data fills the memory that pointers reach, with what tells one address from another, and with
// the word that says whether the stack is large enough.
func (j *jumping) data() []byte {
	data := make([]byte, 0x5000)
	for i := range data {
		data[i] = byte(j.rand.Uint32())
	}
	binary.LittleEndian.PutUint32(data[8:], 0)
	binary.LittleEndian.PutUint32(data[16:], uint32(j.rand.IntN(3))*20000)
	return append(binary.AppendUvarint([]byte{1, 0, opI32Const, 0, opEnd}, uint64(len(data))), data...)
}
