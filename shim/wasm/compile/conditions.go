package compile

// jumpIf says whether the "if" at i is but a jump to a chunk.
func (f *flow) jumpIf(i, nest, n int) (to int, is bool) {
	if f.code[i].op != opIf || !f.lone || i+4 >= f.chunks[n].end || f.code[i+3].op != opBr || f.code[i+4].op != opEnd || !isEmptyType(&f.code[i]) {
		return 0, false
	}
	to, kind := f.branch(i+3, nest+1, n)
	return to, kind == jump
}

// jumpOn jumps to a chunk if the condition that has been written holds. Where several ways meet wazero puts something between a
// conditional branch and its target, and no longer makes one instruction of the comparison and the branch.
func (w *way) jumpOn(n, to int) bool {
	nest := len(w.nests)
	if w.ways[to] == 1 {
		return w.branchTo(opBrIf, n, to, nest)
	}
	w.out = append(w.out, opIf, emptyType&0x7f)
	if !w.branchTo(opBr, n, to, nest+1) {
		return false
	}
	w.out = append(w.out, opElse, opEnd) // without "else" wazero forgets what it knows
	return true
}

// settle makes the condition that ends before instruction i, and has been written, one comparison.
func (w *way) settle(i int) {
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
	w.out = w.out[:len(w.out)-(i-1-last)] // a byte each
	if !not {
		return
	}
	if inverse := inverses[w.code[last].op]; inverse != 0 {
		w.out[len(w.out)-1] = inverse
		return
	}
	w.out = append(w.out, opI32Eqz)
}

// inverses are the comparisons of integers that are true when another is not.
var inverses = map[byte]byte{
	0x46: 0x47, 0x47: 0x46, 0x48: 0x4e, 0x4e: 0x48, 0x49: 0x4f, 0x4f: 0x49, 0x4a: 0x4c, 0x4c: 0x4a, 0x4b: 0x4d, 0x4d: 0x4b,
	0x51: 0x52, 0x52: 0x51, 0x53: 0x59, 0x59: 0x53, 0x54: 0x5a, 0x5a: 0x54, 0x55: 0x57, 0x57: 0x55, 0x56: 0x58, 0x58: 0x56,
}
