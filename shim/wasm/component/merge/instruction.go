package merge

import "github.com/sunaba-project/sunaba/shim/wasm/format"

// form is what follows an opcode.
type form byte

const (
	formUnknown      form = iota
	formPlain             // nothing
	formBlock             // the type of a block
	formNumber            // a number that stays as it is
	formBranches          // a list of labels, and one more
	formCall              // a function
	formCallIndirect      // a type and a table
	formSelect            // a list of value types
	formGlobal            // a global
	formGlobalGet         // a global that is read
	formTable             // a table
	formTableSet          // a table that is changed
	formAccess            // an alignment and an offset into memory
	formMemory            // a memory
	formFour              // four bytes
	formEight             // eight bytes
	formRefNull           // a type of references
	formRefFunc           // a function that is not called
	formPrefixFC
	formPrefixFD
	formException
	formGC
	formThreads
)

// opcodes says what follows each opcode.
var opcodes = func() (forms [256]form) {
	set := func(f form, first, last int) {
		for op := first; op <= last; op++ {
			forms[op] = f
		}
	}
	set(formPlain, 0x00, 0x01)
	set(formBlock, 0x02, 0x04)
	set(formPlain, 0x05, 0x05)
	set(formException, 0x06, 0x0a)
	set(formPlain, opEnd, opEnd)
	set(formNumber, 0x0c, 0x0d) // br, br_if
	set(formBranches, 0x0e, 0x0e)
	set(formPlain, 0x0f, 0x0f)
	set(formCall, opCall, opCall)
	set(formCallIndirect, opCallIndirect, opCallIndirect)
	set(formCall, 0x12, 0x12)         // return_call
	set(formCallIndirect, 0x13, 0x13) // return_call_indirect
	set(formGC, 0x14, 0x15)
	set(formException, 0x18, 0x19)
	set(formPlain, 0x1a, 0x1b) // drop, select
	set(formSelect, 0x1c, 0x1c)
	set(formException, 0x1f, 0x1f)
	set(formNumber, 0x20, 0x22) // local.get, local.set, local.tee
	set(formGlobalGet, opGlobalGet, opGlobalGet)
	set(formGlobal, 0x24, 0x24)
	set(formTable, 0x25, 0x25)
	set(formTableSet, 0x26, 0x26)
	set(formAccess, 0x28, 0x3e)
	set(formMemory, 0x3f, 0x40)
	set(formNumber, 0x41, 0x42)
	set(formFour, 0x43, 0x43)
	set(formEight, 0x44, 0x44)
	set(formPlain, 0x45, 0xc4)
	set(formRefNull, 0xd0, 0xd0)
	set(formPlain, 0xd1, 0xd1)
	set(formRefFunc, 0xd2, 0xd2)
	set(formGC, 0xd3, 0xd6)
	set(formGC, 0xfb, 0xfb)
	set(formPrefixFC, opPrefixFC, opPrefixFC)
	set(formPrefixFD, opPrefixFD, opPrefixFD)
	set(formThreads, 0xfe, 0xfe)
	return forms
}()

// instruction rewrites the immediates of an instruction.
func (w *rewriter) instruction(op byte) {
	switch opcodes[op] {
	case formPlain:
	case formNumber:
		w.number()
	case formAccess:
		w.access()
	case formCall:
		w.callee()
	case formBlock:
		w.block()
	case formGlobalGet:
		w.globalGet()
	case formGlobal:
		w.indexOf(w.mod.globals, "global")
	case formBranches:
		w.branches()
	case formCallIndirect:
		w.callIndirect()
	case formSelect:
		for range w.read() {
			w.valueType(w.octet())
			if w.err != nil {
				return
			}
		}
	case formMemory:
		w.memory()
	case formFour:
		w.skip(4)
	case formEight:
		w.skip(8)
	default:
		w.reference(op)
	}
}

// reference rewrites the immediates of an instruction that is no ordinary one.
func (w *rewriter) reference(op byte) {
	switch opcodes[op] {
	case formTable:
		w.indexOf(w.mod.tables, "table")
	case formTableSet:
		w.changedTable()
	case formRefNull:
		if t := w.octet(); w.err == nil {
			w.fail(checkReferenceType(t))
		}
	case formRefFunc:
		w.refFunc()
	case formPrefixFC:
		w.bulk()
	case formPrefixFD:
		w.vector()
	case formException:
		w.fail(errExceptions)
	case formGC:
		w.fail(errGC)
	case formThreads:
		w.fail(errThreads)
	default:
		w.fail(invalid("unknown opcode 0x%02x", op))
	}
}

// bulk rewrites what follows the prefix 0xfc.
func (w *rewriter) bulk() {
	switch op := w.read(); op {
	case 0, 1, 2, 3, 4, 5, 6, 7: // saturating conversions
	case fcMemoryInit:
		w.dataIndex()
		w.memory()
	case fcDataDrop:
		w.dataIndex()
	case 10: // memory.copy
		w.memory()
		w.memory()
	case 11: // memory.fill
		w.memory()
	case fcTableInit:
		w.offsetIndex(w.mod.elementsAt, w.mod.elements, "element segment")
		w.changedTable()
	case fcElemDrop:
		w.offsetIndex(w.mod.elementsAt, w.mod.elements, "element segment")
	case 14: // table.copy
		w.changedTable()
		w.indexOf(w.mod.tables, "table")
	case 15, 17: // table.grow, table.fill
		w.changedTable()
	case 16: // table.size
		w.indexOf(w.mod.tables, "table")
	default:
		if op >= 18 && op <= 22 {
			w.fail(errWide)
		}
		w.fail(invalid("unknown opcode 0xfc %d", op))
	}
}

// vector rewrites what follows the prefix 0xfd.
func (w *rewriter) vector() {
	switch op := w.read(); {
	case op <= 11, op == 92, op == 93: // loads and a store
		w.access()
	case op <= 13: // v128.const, i8x16.shuffle
		w.skip(16)
	case op >= 21 && op <= 34: // of one lane
		w.octet()
	case op >= 84 && op <= 91: // loads and stores of one lane
		w.access()
		w.octet()
	case op <= 255:
	case op <= 0x1ff:
		w.fail(errRelaxed)
	default:
		w.fail(invalid("unknown opcode 0xfd %d", op))
	}
}

// block rewrites the type of a block.
func (w *rewriter) block() {
	at := w.at
	r := format.Reader{Rest: w.in[w.at:]}
	t := r.Long()
	w.at = len(w.in) - len(r.Rest)
	switch {
	case r.Bad:
		w.fail(errCut)
	case t >= 0 && t < int64(len(w.mod.types)):
		w.flush(at)
		w.out = appendSigned(w.out, int64(w.mod.types[t]))
	case t >= 0:
		w.fail(invalid("type %d of %d", t, len(w.mod.types)))
	case t < -0x40:
		w.fail(invalid("unknown type of a block"))
	case t != -0x40:
		w.valueType(byte(t & 0x7f))
	}
}
