package compile

import (
	"encoding/binary"
	"math"
)

// check is a check for a nil pointer:
//
//	i64.eqz, if, …, call sigpanic, …, br_if out of the function, end
//
// Go's compiler writes no other call into an "if", but that for a larger stack, whose condition is another one. sigpanic does not
// return: it unwinds, or the program ends. So the second way has these calls behind all else, and where the pointer is
// one it goes on knowing all that it knew.
type check struct{ first, last, nest, chunk int } // the "if", its "end", the blocks of the chunk around it, and the chunk

// none is no function.
const none = -1

// coldLabel is the label of the block that the call of the k-th check follows.
func coldLabel(k int) int { return math.MinInt/2 + k }

// nilCheck tells which function the "if" at i calls, in so many blocks of a chunk, if it is a check for a nil pointer, and
// where it ends.
func (f *flow) nilCheck(i, nest, n int) (calls int64, last int, is bool) {
	if !isEmptyType(&f.code[i]) || f.code[i-1].op != opI64Eqz {
		return none, 0, false
	}
	calls = none
	for k := i + 1; k < f.chunks[n].end; k++ {
		switch one := &f.code[k]; one.op {
		case opCall:
			if calls != none {
				return none, 0, false
			}
			calls = one.value
		case opBrIf:
			_, kind := f.branch(k, nest+1, n)
			return calls, k + 1, calls != none && kind == outer && f.code[k+1].op == opEnd
		case opLocalGet, opLocalTee, opLocalSet, opGlobalGet, opGlobalSet, opI32Const, opI32Sub, opI64Const, opI64Store:
		default:
			return none, 0, false
		}
	}
	return none, 0, false
}

// findChecks finds the checks in all that the second way has.
func (w *way) findChecks(m *goModule) {
	w.checkAt = map[int]int{}
	for _, n := range w.order {
		nest := 0
		for i := w.chunks[n].first; i < w.chunks[n].end; i++ {
			switch w.code[i].op {
			case opIf:
				calls, last, is := w.nilCheck(i, nest, n)
				if is && m.sigpanic == none {
					m.sigpanic = calls
				}
				if is && calls == m.sigpanic {
					w.checkAt[i] = len(w.checks)
					w.checks = append(w.checks, check{i, last, nest, n})
					i = last
					continue
				}
				nest++
			case opBlock, opLoop:
				nest++
			case opEnd:
				nest--
			}
		}
	}
}

// openCold opens the blocks that the calls follow.
func (w *way) openCold() {
	for k := len(w.checks) - 1; k >= 0; k-- {
		w.open(opBlock, coldLabel(k))
	}
}

// writeCold closes them, with the calls.
func (w *way) writeCold() {
	for k := range w.checks {
		w.close()
		c := &w.checks[k]
		leaves := c.last - 1
		for i := c.first + 1; i < leaves; i++ {
			w.writeInstruction(i)
		}
		out := w.outside(leaves, c.nest+1, c.chunk) + len(w.labels)
		w.out = append(binary.AppendUvarint(append(w.out, opBrIf), uint64(out)), opUnreachable)
	}
}
