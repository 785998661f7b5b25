package verify

import "slices"

// escapes says whether addresses in a function's frame may be known outside of it: whether the
// stack pointer is used for anything but addresses, itself, and comparisons.
func (m *Module) escapes(f *function) bool {
	var stack []bool // for each operand since the last branch or call: is it an address in the frame
	for k := range f.code {
		i := &f.code[k]
		takes, gives, err := m.effect(i)
		if err != nil || i.op == opCall || i.op == opCallOf {
			if slices.Contains(stack, true) {
				return true
			}
			stack = stack[:0]
			continue
		}
		highest, any := false, false
		for n := range takes {
			if last := len(stack) - 1; last >= 0 {
				any = any || stack[last]
				highest = highest || n == 0 && stack[last]
				stack = stack[:last]
			}
		}
		result := false
		switch op := i.op; {
		case op == opLocalGet:
			result = i.value == 1
		case op == opGlobalGet:
			result = i.value == 0
		case op == opExtend || op == opWrap || op == opI64Add || op == opI32Add || op == opI32Sub:
			result = any
		case op == opLocalSet && i.value == 1, op == opGlobalSet && i.value == 0, op == opDrop, op >= opI32Eqz && op <= opLastCompare,
			op >= opLoadFirst && op <= opLoadLast:
		case op == opLocalTee && i.value == 1:
			result = any
		case op >= opStoreFirst && op <= opStoreLast:
			if highest { // the stored value
				return true
			}
		case any:
			return true
		}
		for range gives {
			stack = append(stack, result)
		}
	}
	return false
}
