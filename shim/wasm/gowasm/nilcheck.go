package gowasm

import (
	"encoding/binary"
	"math"
)

// nilCheck is a check for a nil pointer, as Go's compiler writes it:
//
//	i64.eqz, if, …, call sigpanic, …, br_if out of the function, end
//
// Go's compiler writes no other call into an "if", except the one for a larger stack, whose
// condition differs. sigpanic does not return: it unwinds, or the program ends. So the fast path
// has these calls out of line, behind all other code, and what wazero knows of bounds survives the
// check.
type nilCheck struct{ first, last, nest, block int } // the "if", its "end", how deep they are nested in the block, and the block

// noFunction stands for a function that is not known.
const noFunction = -1

// panicLabel is the label of the construct that the out-of-line call of check k follows.
func panicLabel(k int) int { return math.MinInt/2 + k }

// matchNilCheck says whether the "if" at i, nested nest deep in block n, is a check for a nil
// pointer. It returns the function that the check calls and its last instruction.
func (f *controlFlow) matchNilCheck(i, nest, n int) (calls int64, last int, is bool) {
	if !isEmptyType(&f.code[i]) || f.code[i-1].op != opI64Eqz {
		return noFunction, 0, false
	}
	calls = noFunction
	for k := i + 1; k < f.blocks[n].end; k++ {
		switch one := &f.code[k]; one.op {
		case opCall:
			if calls != noFunction {
				return noFunction, 0, false
			}
			calls = one.value
		case opBrIf:
			_, kind := f.branchTarget(k, nest+1, n)
			return calls, k + 1, calls != noFunction && kind == outerBranch && f.code[k+1].op == opEnd
		case opLocalGet, opLocalTee, opLocalSet, opGlobalGet, opGlobalSet, opI32Const, opI32Sub, opI64Const, opI64Store:
		default:
			return noFunction, 0, false
		}
	}
	return noFunction, 0, false
}

// findNilChecks finds the checks in all reachable blocks.
func (w *fastPath) findNilChecks(m *goModule) {
	w.checkAt = map[int]int{}
	for _, n := range w.order {
		nest := 0
		for i := w.blocks[n].first; i < w.blocks[n].end; i++ {
			switch w.code[i].op {
			case opIf:
				calls, last, is := w.matchNilCheck(i, nest, n)
				if is && m.sigpanic == noFunction {
					m.sigpanic = calls
				}
				if is && calls == m.sigpanic {
					w.checkAt[i] = len(w.checks)
					w.checks = append(w.checks, nilCheck{i, last, nest, n})
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

// writePanicCalls closes the constructs of the checks. Each is followed by the call of its check.
func (w *fastPath) writePanicCalls() {
	for k := range w.checks {
		w.close()
		c := &w.checks[k]
		leaves := c.last - 1
		for i := c.first + 1; i < leaves; i++ {
			w.copyInstruction(i)
		}
		out := w.outerDepth(leaves, c.nest+1, c.block) + len(w.labels)
		w.out = append(binary.AppendUvarint(append(w.out, opBrIf), uint64(out)), opUnreachable)
	}
}
