package gowasm

// conditionalJump says whether the "if" at i holds nothing but a jump, and to which block.
func (f *controlFlow) conditionalJump(i, nest, n int) (to int, is bool) {
	if f.code[i].op != opIf || !f.selectorUnread || i+4 >= f.blocks[n].end || f.code[i+3].op != opBr || f.code[i+4].op != opEnd || !isEmptyType(&f.code[i]) {
		return 0, false
	}
	to, kind := f.branchTarget(i+3, nest+1, n)
	return to, kind == jumpBranch
}

// writeConditionalJump writes a jump to a block under the condition that has just been written. At
// a join point wazero puts code between a conditional branch and its target, and no longer fuses
// the comparison with the branch. There the jump is put into an "if".
func (w *fastPath) writeConditionalJump(n, to int) bool {
	nest := len(w.nesting)
	if w.inEdges[to] == 1 {
		return w.branchTo(opBrIf, n, to, nest)
	}
	w.out = append(w.out, opIf, emptyType&0x7f)
	if !w.branchTo(opBr, n, to, nest+1) {
		return false
	}
	w.out = append(w.out, opElse, opEnd) // without "else" wazero forgets which bounds it has checked
	return true
}

// foldCondition folds the condition that ends before instruction i, and has just been written,
// into one comparison.
func (w *fastPath) foldCondition(i int) {
	last, not := i-1, false
	for ; ; not = !not {
		if w.code[last].op == opI32Eqz {
			last--
		} else if w.code[last].op == opI64Eqz && w.code[last-1].op == opI64ExtendU {
			last -= 2
		} else {
			break
		}
	}
	w.out = w.out[:len(w.out)-(i-1-last)] // one byte each
	if !not {
		return
	}
	if inverse := inverses[w.code[last].op]; inverse != 0 {
		w.out[len(w.out)-1] = inverse
		return
	}
	w.out = append(w.out, opI32Eqz)
}

// inverses maps the comparisons of integers to their negations.
var inverses = map[byte]byte{
	0x46: 0x47, 0x47: 0x46, 0x48: 0x4e, 0x4e: 0x48, 0x49: 0x4f, 0x4f: 0x49, 0x4a: 0x4c, 0x4c: 0x4a, 0x4b: 0x4d, 0x4d: 0x4b,
	0x51: 0x52, 0x52: 0x51, 0x53: 0x59, 0x59: 0x53, 0x54: 0x5a, 0x5a: 0x54, 0x55: 0x57, 0x57: 0x55, 0x56: 0x58, 0x58: 0x56,
}
