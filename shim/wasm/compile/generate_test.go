package compile

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// Locals of a generated function: its parameter, a sum of all that it reads, an address that is
// used with several offsets, and counters of loops.
const (
	parameter = iota
	sum
	base
	counters
	nesting = 3 // of loops: each has a counter
)

// generated is a random module: functions from i32 to i64 that read, write and grow the memory,
// mostly inside of it, and call each other. Each is exported by a letter.
type generated struct {
	rand    *rand.Rand
	code    []byte
	pages   int // of memory, at the start
	passive bool
	number  int // of the function
	loops   int // around what is written
}

func (g *generated) op(code byte, values ...int64) {
	g.code = append(g.code, code)
	for _, v := range values {
		g.code = appendSigned(g.code, v)
	}
}

// appendSigned appends a number in signed LEB128.
func appendSigned(b []byte, v int64) []byte {
	for ; v < -64 || v > 63; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v)&0x7f)
}

func (g *generated) i32(v int) { g.op(opI32Const, int64(int32(v))) }

func (g *generated) get(local byte) { g.code = append(g.code, 0x20, local) }

// address pushes an address: inside of the memory, at its end, or far outside.
func (g *generated) address() {
	size := g.pages * wasmPage
	switch n := g.rand.IntN(40); {
	case n < 30:
		g.i32(g.rand.IntN(size - 256))
		g.get(byte(g.rand.IntN(2)) * (counters + byte(g.rand.IntN(nesting)))) // the parameter, or a counter
		g.i32(127)
		g.op(0x71) // i32.and
		g.op(0x6a) // i32.add
	case n < 38: // the end, as it is now
		g.code = append(g.code, 0x3f, 0) // memory.size
		g.i32(16)
		g.op(0x74) // i32.shl
		g.i32(8 + g.rand.IntN(16))
		g.op(0x6b) // i32.sub
	case n < 39:
		g.i32(size - g.rand.IntN(9))
	default:
		g.i32([]int{-1, -8, 1 << 31, size * 2}[g.rand.IntN(4)])
	}
}

// offset is that of a load or store.
func (g *generated) offset() uint64 {
	switch n := g.rand.IntN(60); {
	case n < 1:
		return uint64(g.rand.Uint32())
	case n < 4: // beyond the memory, unless it has grown or the address is low
		return uint64(g.pages*wasmPage - g.rand.IntN(1000))
	case n < 20:
		return uint64(g.rand.IntN(wasmPage))
	}
	return uint64(g.rand.IntN(24))
}

func (g *generated) access(op byte) {
	g.code = binary.AppendUvarint(append(g.code, op, 0), g.offset())
}

// place pushes the address of a load or store. wazero compares the base with the end of memory only
// as often as it must.
func (g *generated) place() {
	if g.rand.IntN(3) == 0 {
		g.address()
		return
	}
	if g.rand.IntN(6) == 0 {
		g.address()
		g.code = append(g.code, 0x21, base)
	}
	g.get(base)
}

// add adds the i64 on the stack to the sum.
func (g *generated) add() {
	g.get(sum)
	g.op(0x42, 31)
	g.op(0x7e) // i64.mul
	g.op(0x7c) // i64.add
	g.code = append(g.code, 0x21, sum)
}

// length pushes how many bytes are copied or filled.
func (g *generated) length() { g.i32(g.rand.IntN(20)) }

func (g *generated) statement() {
	switch n := g.rand.IntN(14); {
	case n < 3:
		g.place()
		g.access([]byte{0x29, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35}[g.rand.IntN(7)]) // to i64
		g.add()
	case n < 6:
		g.place()
		g.get(sum)
		g.access([]byte{0x37, 0x3c, 0x3d, 0x3e}[g.rand.IntN(4)]) // of i64
	case n < 8:
		g.bulk()
	case n < 9 && g.loops < nesting:
		g.loop()
	case n < 10:
		g.get(sum)
		g.op(0x42, int64(1)<<g.rand.IntN(8))
		g.op(0x83)      // i64.and
		g.op(0xa7)      // i32.wrap_i64
		g.op(0x04, -64) // if
		g.statement()
		g.op(0x05)
		g.statement()
		g.op(opEnd)
	case n < 12:
		g.compute()
	default:
		g.call()
	}
}

// loop is one that ends after a few rounds.
func (g *generated) loop() {
	counter := counters + byte(g.loops)
	g.i32(1 + g.rand.IntN(6))
	g.code = append(g.code, 0x21, counter)
	g.op(0x03, -64)
	g.loops++
	for range 1 + g.rand.IntN(4) {
		g.statement()
	}
	g.loops--
	g.get(counter)
	g.i32(-1)
	g.op(0x6a)
	g.code = append(g.code, 0x22, counter, 0x0d, 0, opEnd) // as long as the counter is not 0
}

// bulk is an instruction on a range of memory, or one that makes memory larger.
func (g *generated) bulk() {
	switch n := g.rand.IntN(7); {
	case n < 2:
		g.address()
		g.address()
		g.length()
		g.code = append(g.code, 0xfc, 10, 0, 0) // memory.copy
	case n < 4:
		g.address()
		g.get(parameter)
		g.length()
		g.code = append(g.code, 0xfc, 11, 0) // memory.fill
	case n < 5 && g.passive:
		g.address()
		g.i32(g.rand.IntN(4))
		g.length()
		g.code = append(g.code, 0xfc, 8, 0, 0) // memory.init
	case n < 6 && g.passive && g.rand.IntN(4) == 0:
		g.code = append(g.code, 0xfc, 9, 0) // data.drop
	default:
		g.i32(g.rand.IntN(3))
		g.code = append(g.code, 0x40, 0) // memory.grow
		g.op(0xad)                       // i64.extend_i32_u
		g.add()
	}
}

// compute is arithmetic, some of which traps for some operands.
func (g *generated) compute() {
	g.get(sum)
	switch n := g.rand.IntN(4); n {
	case 0:
		g.op(0x42, int64(g.rand.IntN(20)-1))
		g.op([]byte{0x7f, 0x80, 0x81, 0x82}[g.rand.IntN(4)]) // division
	case 1:
		g.op(0xb9) // f64.convert_i64_s
		g.op(0x9f) // f64.sqrt
		g.code = append(g.code, 0xfc, 6)
	case 2:
		g.op(0xb9)
		g.op([]byte{0xb0, 0xb1}[g.rand.IntN(2)]) // i64.trunc_f64
	default:
		g.op(0x42, g.rand.Int64())
		g.op([]byte{0x7d, 0x85, 0x86, 0x87, 0x88, 0x89}[g.rand.IntN(6)])
	}
	g.add()
}

// call is one of a function before this one, or by the table, some of whose entries are none or of
// another type.
func (g *generated) call() {
	g.get(parameter)
	if g.number > 1 && g.rand.IntN(2) == 0 {
		g.code = append(g.code, 0x10, byte(1+g.rand.IntN(g.number-1)))
	} else if g.number > 2 {
		g.i32(g.rand.IntN(10))
		g.code = append(g.code, 0x11, 1, 0)
	} else {
		g.op(0xad)
	}
	g.add()
}

// fillers is how many functions a module has whose machine code is to be in a file of its own.
const fillers = 120

// module builds the module.
func (g *generated) module() []byte {
	g.pages = 4 + g.rand.IntN(3)
	g.passive = g.rand.IntN(4) == 0
	count := 3 + g.rand.IntN(5)
	bodies := [][]byte{{0, opEnd}}
	exports := []byte{byte(count + 2), 6}
	exports = append(append(exports, "_start\x00\x00"...), "\x06memory\x02\x00"...)
	for g.number = 1; g.number <= count; g.number++ {
		g.code = []byte{2, 1, 0x7e, 1 + nesting, 0x7f}
		for range 4 + g.rand.IntN(12) {
			g.statement()
		}
		g.get(sum)
		g.op(opEnd)
		bodies = append(bodies, g.code)
		exports = append(exports, 1, 'a'+byte(g.number-1), 0, byte(g.number))
	}
	if g.rand.IntN(4) == 0 {
		for n := range fillers {
			bodies = append(bodies, bodies[1+n%count])
		}
	}
	functions := binary.AppendUvarint(nil, uint64(len(bodies)))
	code := binary.AppendUvarint(nil, uint64(len(bodies)))
	for i, b := range bodies {
		functions = append(functions, byte(min(i, 1)))
		code = append(binary.AppendUvarint(code, uint64(len(b))), b...)
	}
	elements := []byte{1, 0, opI32Const, byte(g.rand.IntN(3)), opEnd, 5, 0, 1, 2, 1, 0} // of ten
	sections := []format.Section{
		format.NewSection(format.SectionType, []byte{2, 0x60, 0, 0, 0x60, 1, 0x7f, 1, 0x7e}),
		format.NewSection(format.SectionFunction, functions),
		format.NewSection(format.SectionTable, []byte{1, 0x70, 0, 9}),
		format.NewSection(format.SectionMemory, []byte{1, 1, byte(g.pages), byte(g.pages + g.rand.IntN(20))}),
		format.NewSection(format.SectionExport, exports),
		format.NewSection(format.SectionElement, elements),
	}
	segments, n := g.segments()
	if g.passive {
		sections = append(sections, format.NewSection(format.SectionDataCount, []byte{n}))
	}
	return format.Join(append(sections, format.NewSection(format.SectionCode, code), format.NewSection(format.SectionData, segments)))
}

// segments are the data, of which there is enough for an image of the memory. They may lie over
// each other.
func (g *generated) segments() (section []byte, count byte) {
	data := func(n int) []byte {
		all := binary.AppendUvarint(nil, uint64(n))
		for range n {
			all = append(all, byte(g.rand.Uint32()))
		}
		return all
	}
	if g.passive {
		count, section = 1, append(append(section, 1), data(12)...)
	}
	for n := range 1 + g.rand.IntN(4) {
		size := 1 + g.rand.IntN(300)
		if n == 0 && g.rand.IntN(4) > 0 {
			size += Worth
		}
		count++
		section = append(appendSigned(append(section, dataActive, opI32Const), int64(g.rand.IntN(g.pages*wasmPage-size+1))), opEnd)
		section = append(section, data(size)...)
	}
	return append([]byte{count}, section...), count
}
