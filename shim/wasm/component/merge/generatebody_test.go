package merge

import (
	"encoding/binary"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// coder writes the body of a function.
type coder struct {
	*written
	code   []byte
	locals []byte // types, those of the parameters first
}

func (c *coder) op(bytes ...byte) { c.code = append(c.code, bytes...) }

func (c *coder) number(op byte, n uint64) { c.code = binary.AppendUvarint(append(c.code, op), n) }

// body makes a body of a function.
func (w *written) body(t format.FuncType) []byte {
	if body := w.trampolineBody(t); body != nil {
		return body
	}
	c := &coder{written: w, locals: append([]byte(nil), t.Params...)}
	c.op(2, 1, typeI32, 1, typeI64)
	c.locals = append(c.locals, typeI32, typeI64)
	c.number(opGlobalGet, uint64(w.fuel))
	c.op(0x45, 0x04, 0x40, opUnreachable, opEnd)
	c.number(opGlobalGet, uint64(w.fuel))
	c.op(opI32Const, 1, opI32Sub)
	c.number(0x24, uint64(w.fuel))
	for range w.IntN(5) {
		c.statement(2)
	}
	if callee := w.IntN(len(w.functions)); w.chance(10) && string(w.functions[callee].Results) == string(t.Results) {
		c.arguments(w.functions[callee], 1)
		c.number(0x12, uint64(callee)) // return_call
	} else {
		for _, r := range t.Results {
			c.value(r, 3)
		}
	}
	c.op(opEnd)
	return c.code
}

// trampolineBody makes a trampoline, or what is nearly one.
func (w *written) trampolineBody(t format.FuncType) []byte {
	if len(w.tables) == 0 || !w.chance(30) {
		return nil
	}
	c := &coder{written: w}
	c.op(0)
	for n := range t.Params {
		c.number(opLocalGet, uint64(n))
	}
	c.op(opI32Const, byte(w.IntN(5)))
	c.number(opCallIndirect, w.typeOf(t))
	c.op(byte(w.IntN(len(w.tables))))
	if w.chance(5) {
		c.op(0x01)
	}
	c.op(opEnd)
	return c.code
}

func (c *coder) arguments(t format.FuncType, depth int) {
	for _, p := range t.Params {
		c.value(p, depth)
	}
}

// address pushes an address that is mostly inside the memory.
func (c *coder) address(depth int) {
	c.value(typeI32, depth)
	c.op(opI32Const, 0xff, 0, 0x71) // i32.and with 127
}

// slot pushes an index of a table.
func (c *coder) slot(depth int) {
	c.value(typeI32, depth)
	c.op(opI32Const, 7, 0x71)
}

// call calls a function directly or through a table. Its results are left on the stack.
func (c *coder) call(depth int) (results []byte) {
	if len(c.tables) > 0 && c.chance(40) {
		t := signatures[c.IntN(len(signatures))]
		c.arguments(t, depth)
		if c.chance(50) {
			c.op(opI32Const, byte(c.IntN(5)))
		} else {
			c.slot(depth)
		}
		c.number(opCallIndirect, c.typeOf(t))
		c.op(byte(c.IntN(len(c.tables))))
		return t.Results
	}
	n := c.IntN(len(c.functions))
	c.arguments(c.functions[n], depth)
	c.number(opCall, uint64(n))
	return c.functions[n].Results
}

// statement appends instructions that leave the stack as it was.
func (c *coder) statement(depth int) {
	if depth < 0 {
		return
	}
	switch n := c.IntN(16); {
	case n < 3:
		for range c.call(depth - 1) {
			c.op(0x1a)
		}
	case n < 5:
		g := c.IntN(len(c.globals))
		if t := c.globals[g].global; t.mutable && g != int(c.fuel) {
			c.value(t.value, depth-1)
			c.number(0x24, uint64(g))
		}
	case n < 6:
		l := len(c.locals) - 2 + c.IntN(2)
		c.value(c.locals[l], depth-1)
		c.number(0x21, uint64(l))
	case n < 8:
		c.value(typeI32, depth-1)
		c.op(0x04, 0x40)
		c.statement(depth - 1)
		c.op(0x05)
		c.statement(depth - 1)
		c.op(opEnd)
	case n < 9: // block, br_table
		c.op(0x02, 0x40, 0x02, 0x40)
		c.value(typeI32, depth-1)
		c.op(0x0e, 2, 0, 1, 0, opEnd)
		c.statement(depth - 1)
		c.op(opEnd)
	case n < 12:
		c.memoryStatement(depth - 1)
	default:
		c.tableStatement(depth - 1)
	}
}

func (c *coder) memoryStatement(depth int) {
	if len(c.passive) > 0 && c.chance(30) {
		c.number(opPrefixFC, fcDataDrop)
		c.op(c.passive[c.IntN(len(c.passive))])
		return
	}
	if !c.memory {
		return
	}
	c.address(depth)
	switch c.IntN(5) {
	case 0:
		c.value(typeI64, depth)
		c.op(0x37, 3, byte(c.IntN(64)))
	case 1:
		c.op(0xfd, 12)
		for range 16 {
			c.op(byte(c.IntN(256)))
		}
		c.op(0xfd, 11, 4, 8) // v128.store
	case 2:
		c.value(typeI32, depth)
		c.op(opI32Const, 9, 0xfc, 11, 0)
	case 3:
		c.address(depth)
		c.op(opI32Const, 12, 0xfc, 10, 0, 0)
	default:
		if len(c.passive) == 0 {
			c.op(0x1a)
			return
		}
		c.op(opI32Const, 0, opI32Const, byte(c.IntN(4)), 0xfc, fcMemoryInit, c.passive[c.IntN(len(c.passive))], 0)
	}
}

func (c *coder) tableStatement(depth int) {
	if len(c.elements) > 0 && c.chance(20) {
		c.op(0xfc, fcElemDrop, byte(c.IntN(len(c.elements))))
		return
	}
	if len(c.tables) == 0 || c.calm || !c.chance(40) {
		return
	}
	t := byte(c.IntN(len(c.tables)))
	switch c.IntN(6) {
	case 0:
		c.slot(depth)
		c.value(typeFuncref, depth)
		c.op(0x26, t)
	case 1:
		c.value(typeFuncref, depth)
		c.op(opI32Const, 1, 0xfc, 15, t, 0x1a)
	case 2:
		c.op(opI32Const, 1)
		c.value(typeFuncref, depth)
		c.op(opI32Const, 2, 0xfc, 17, t)
	case 3:
		c.op(opI32Const, 1, opI32Const, 0, opI32Const, 2, 0xfc, 14, t, byte(c.IntN(len(c.tables))))
	default:
		if len(c.elements) > 0 {
			c.op(opI32Const, 1, opI32Const, 0, opI32Const, byte(c.IntN(3)), 0xfc, fcTableInit, byte(c.IntN(len(c.elements))), t)
		}
	}
}

// value pushes a value of a type.
func (c *coder) value(t byte, depth int) {
	if depth > 0 && c.chance(70) && c.deep(t, depth-1) {
		return
	}
	for n, l := range c.locals {
		if l == t && c.chance(40) {
			c.number(opLocalGet, uint64(n))
			return
		}
	}
	for n, o := range c.globals {
		if o.global.value == t && n != int(c.fuel) && c.chance(40) {
			c.number(opGlobalGet, uint64(n))
			return
		}
	}
	switch {
	case t == typeI32:
		c.code = appendSigned(append(c.code, opI32Const), int64(c.IntN(300)-100))
	case t == typeI64:
		c.code = appendSigned(append(c.code, opI64Const), c.Int64()>>c.IntN(64))
	case t == typeF64:
		c.op(opF64Const, 0, 0, 0, 0, byte(c.IntN(256)), byte(c.IntN(256)), byte(c.IntN(256)), 0x40)
	case len(c.refs) > 0 && c.chance(70):
		c.number(opRefFunc, uint64(c.refs[c.IntN(len(c.refs))]))
	default:
		c.op(opRefNull, typeFuncref)
	}
}

// deep pushes a value that is computed. It returns false if it knows no way.
func (c *coder) deep(t byte, depth int) bool {
	switch n := c.IntN(6); {
	case n == 0: // a function with one such result
		for f, s := range c.functions {
			if len(s.Results) == 1 && s.Results[0] == t && c.chance(50) {
				c.arguments(s, depth)
				c.number(opCall, uint64(f))
				return true
			}
		}
		return false
	case n == 1: // select with a type
		c.value(t, depth)
		c.value(t, depth)
		c.value(typeI32, depth)
		c.op(0x1c, 1, t)
		return true
	case n == 2: // a block with a type, by its index where there is one
		for _, s := range signatures {
			if len(s.Params) > 0 && len(s.Results) == 1 && s.Results[0] == t && len(s.Params) == 1 && s.Params[0] == t {
				c.value(t, depth)
				c.code = appendSigned(append(c.code, 0x02), int64(c.typeOf(s)))
				c.op(opEnd)
				return true
			}
		}
		c.op(0x02, t)
		c.value(t, depth)
		c.op(opEnd)
		return true
	}
	switch t {
	case typeI32:
		c.integer(depth)
	case typeI64:
		c.value(typeI64, depth)
		c.value(typeI64, depth)
		c.op([]byte{0x7c, 0x7d, 0x7e, 0x83, 0x85, 0x89}[c.IntN(6)])
	case typeF64:
		c.value(typeI64, depth)
		c.op(0xb9) // f64.convert_i64_s
	case typeFuncref:
		if len(c.tables) == 0 {
			return false
		}
		c.slot(depth)
		c.op(0x25, byte(c.IntN(len(c.tables))))
	}
	return true
}

// integer pushes an i32 that is computed.
func (c *coder) integer(depth int) {
	switch n := c.IntN(10); {
	case n == 0 && len(c.tables) > 0:
		c.op(0xfc, 16, byte(c.IntN(len(c.tables))))
	case n == 1 && c.memory:
		c.op(opI32Const, byte(c.IntN(2)), 0x40, 0)
	case n < 4 && c.memory:
		c.address(depth)
		c.op(0x2d, 0, byte(c.IntN(100)))
	case n == 4:
		c.value(typeFuncref, depth)
		c.op(0xd1)
	case n == 5:
		c.value(typeF64, depth)
		c.op(0xfc, 2) // i32.trunc_sat_f64_s
	case n == 6:
		c.value(typeI32, depth)
		c.op(0xfd, 15, 0xfd, 22, 3) // splat and extract a lane
	case n == 7:
		c.value(typeI64, depth)
		c.op(0xa7, 0xc0) // wrap, extend8_s
	default:
		c.value(typeI32, depth)
		c.value(typeI32, depth)
		c.op([]byte{opI32Add, opI32Sub, opI32Mul, 0x71, 0x73, 0x48}[c.IntN(6)])
	}
}
