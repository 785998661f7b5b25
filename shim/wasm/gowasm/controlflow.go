package gowasm

import (
	"slices"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// controlFlow is the control-flow graph of a function that Go's compiler wrote. Its body is
//
//	global.get 0, local.set 1, (block), (loop), block …, local.get 0, br_table …, end,
//	block 0, end, block 1, end, …, (end, unreachable), (end, i32.const 1), end
//
// Local 0, the parameter, selects the basic block at which execution starts: the first one when
// the function is called, another one when a goroutine resumes that was suspended in the function.
// Every jump sets local 0 and branches back to the dispatch loop, so in the body any block seems
// to follow any other. The graph has the edges that there really are.
type controlFlow struct {
	body           []byte
	code           []instruction
	table          []uint32 // the block for each value of local 0; the last one is for all other values
	blocks         []basicBlock
	dispatchLoop   bool // the function has one
	selectorUnread bool // no block reads local 0, except right after setting it
	entry          int  // the first instruction of the dispatch loop, or of the blocks if there is no loop

	order        []int   // the reachable blocks in reverse postorder
	position     []int   // of each block in order, -1 = unreachable
	idom         []int   // the immediate dominator of each block
	dominated    [][]int // the blocks that each block immediately dominates, in order
	isLoopHeader []bool  // a back edge leads to the block
	isJumpTarget []bool  // a jump leads to the block
	inEdges      []int   // the jumps to the block, and the fall through from the block before
}

// basicBlock is the code between two resume points: it is entered at its first instruction only.
type basicBlock struct {
	first, end   int   // instructions
	fallsThrough bool  // into the next block
	endsInTrap   bool  // what follows the block is unreachable
	jumps        []int // blocks that jumps lead to
}

// newControlFlow builds the graph of a body. It returns false for what Go's compiler does not
// write.
func newControlFlow(body []byte, code []instruction) (*controlFlow, bool) {
	f := &controlFlow{body: body, code: code}
	if !f.readHead() {
		return nil, false
	}
	f.computeOrder()
	f.findDominators()
	return f, f.markLoopHeaders()
}

func isEmptyType(i *instruction) bool { return i.value == emptyType }

// readHead reads the body up to the table, and the blocks behind it.
func (f *controlFlow) readHead() bool {
	t := slices.IndexFunc(f.code, func(i instruction) bool { return i.op == opBrTable })
	if t < 4 || f.code[t-1].op != opLocalGet || f.code[t-1].value != 0 || f.code[t+1].op != opEnd {
		return false
	}
	if head := f.code[:2]; head[0].op != opGlobalGet || head[0].value != 0 || head[1].op != opLocalSet || head[1].value != stackPointer {
		return false
	}
	r := format.Reader{Rest: f.body[f.code[t].at+1 : f.code[t].end]}
	count := 0
	for range r.Number() + 1 {
		to := r.Number()
		f.table, count = append(f.table, to), max(count, int(to)+1)
	}
	first := t - 1 - count
	if r.Bad || f.table[0] != 0 || first < 2 {
		return false
	}
	for i := 2; i < t-1; i++ {
		switch one := &f.code[i]; {
		case one.op == opBlock && isEmptyType(one):
		case one.op == opLoop && isEmptyType(one) && i == first-1:
			f.dispatchLoop = true
		default:
			return false
		}
	}
	f.entry = first
	if f.dispatchLoop {
		f.entry--
	}
	return f.readBlocks(t+2, count)
}

// readBlocks reads count blocks, from instruction first on.
func (f *controlFlow) readBlocks(first, count int) bool {
	nest := 0
	for i := first; i < len(f.code); i++ {
		switch one := &f.code[i]; one.op {
		case opBlock, opLoop, opIf:
			nest++
		case opBrTable:
			return false
		case opEnd:
			if nest > 0 {
				nest--
				continue
			}
			f.blocks = append(f.blocks, basicBlock{first: first, end: i, fallsThrough: first == i || !neverFallsThrough(f.code[i-1].op)})
			if first = i + 1; len(f.blocks) == count {
				return f.readTail(i) && f.readJumps()
			}
		}
	}
	return false
}

// neverFallsThrough says whether control never passes from an instruction to the next one.
func neverFallsThrough(op byte) bool { return op == opBr || op == opReturn || op == opUnreachable }

// readTail reads what follows the last block.
func (f *controlFlow) readTail(i int) bool {
	last := &f.blocks[len(f.blocks)-1]
	tail := f.code[i:]
	if f.dispatchLoop {
		tail = tail[1:]
	}
	stops := len(tail) > 0 && tail[0].op == opUnreachable
	if stops {
		tail = tail[1:]
	}
	if last.fallsThrough {
		if !f.dispatchLoop || !stops {
			return false
		}
		last.fallsThrough, last.endsInTrap = false, true
	}
	for i := range tail {
		if one := &tail[i]; one.op != opEnd && (one.op != opI32Const || one.value != 1) {
			return false
		}
	}
	return true
}

func (f *controlFlow) readJumps() bool {
	f.selectorUnread, f.inEdges = true, make([]int, len(f.blocks))
	for n := range f.blocks {
		c := &f.blocks[n]
		if c.fallsThrough {
			f.inEdges[n+1]++
		}
		nest := 0
		for i := c.first; i < c.end; i++ {
			switch f.code[i].op {
			case opLocalGet:
				if f.code[i].value == 0 && (f.code[i-1].op != opI32Const || f.code[i-2].op != opLocalSet || f.code[i-2].value != 0) {
					f.selectorUnread = false
				}
			case opLocalTee:
				f.selectorUnread = f.selectorUnread && f.code[i].value != 0
			case opBlock, opLoop, opIf:
				nest++
			case opEnd:
				nest--
			case opBr, opBrIf:
				to, kind := f.branchTarget(i, nest, n)
				if kind == unknownBranch {
					return false
				}
				if kind != jumpBranch {
					continue
				}
				f.inEdges[to]++
				if !slices.Contains(c.jumps, to) {
					c.jumps = append(c.jumps, to)
				}
			}
		}
	}
	return true
}

// Kinds of branches: not understood, within a block, to a block, and out of the function.
const (
	unknownBranch = iota
	innerBranch
	jumpBranch
	outerBranch
)

// branchTarget returns the kind of the branch at instruction i, which lies in nest nested
// constructs of a block, and for a jump the block that it leads to.
func (f *controlFlow) branchTarget(i, nest, block int) (to, kind int) {
	depth := int(f.code[i].value) - nest
	switch open := len(f.blocks) - 1 - block; {
	case depth < 0:
		return 0, innerBranch
	case depth < open:
		return 0, unknownBranch
	case depth > open || !f.dispatchLoop:
		return 0, outerBranch
	}
	if set, value := &f.code[i-1], &f.code[i-2]; f.code[i].op != opBr || set.op != opLocalSet || set.value != 0 || value.op != opI32Const {
		return 0, unknownBranch
	}
	place := min(uint64(uint32(f.code[i-2].value)), uint64(len(f.table)-1))
	return int(f.table[place]), jumpBranch
}

// outerDepth returns how many constructs around the blocks an outer branch leaves, not counting
// the dispatch loop.
func (f *controlFlow) outerDepth(i, nest, block int) int {
	depth := int(f.code[i].value) - nest - (len(f.blocks) - 1 - block)
	if f.dispatchLoop {
		depth--
	}
	return depth
}

// successors returns the blocks that may follow a block, the first one in the function last.
func (f *controlFlow) successors(n int) []int {
	all := slices.Clone(f.blocks[n].jumps)
	if f.blocks[n].fallsThrough {
		all = append(all, n+1)
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all
}

// computeOrder finds the reachable blocks and their reverse postorder. Of two successors the one
// that comes first in the function comes first: Go's compiler puts unlikely code last.
func (f *controlFlow) computeOrder() {
	type visit struct {
		block int
		rest  []int
	}
	seen := make([]bool, len(f.blocks))
	seen[0] = true
	for path := []visit{{0, f.successors(0)}}; len(path) > 0; {
		v := &path[len(path)-1]
		if len(v.rest) == 0 {
			f.order = append(f.order, v.block)
			path = path[:len(path)-1]
			continue
		}
		next := v.rest[0]
		v.rest = v.rest[1:]
		if !seen[next] {
			seen[next] = true
			path = append(path, visit{next, f.successors(next)})
		}
	}
	slices.Reverse(f.order)
	f.position = slices.Repeat([]int{-1}, len(f.blocks))
	for i, n := range f.order {
		f.position[n] = i
	}
}

// findDominators computes the immediate dominators, with the algorithm of Cooper, Harvey and
// Kennedy.
func (f *controlFlow) findDominators() {
	before := make([][]int, len(f.blocks))
	for _, n := range f.order {
		for _, next := range f.successors(n) {
			before[next] = append(before[next], n)
		}
	}
	f.idom = slices.Repeat([]int{-1}, len(f.blocks))
	f.idom[0] = 0
	for changed := true; changed; {
		changed = false
		for _, n := range f.order[1:] {
			one := -1
			for _, p := range before[n] {
				switch {
				case f.idom[p] < 0:
				case one < 0:
					one = p
				default:
					one = f.commonDominator(one, p)
				}
			}
			if f.idom[n] != one {
				f.idom[n], changed = one, true
			}
		}
	}
	f.dominated = make([][]int, len(f.blocks))
	for _, n := range f.order[1:] {
		f.dominated[f.idom[n]] = append(f.dominated[f.idom[n]], n)
	}
}

// commonDominator returns the nearest block that dominates both.
func (f *controlFlow) commonDominator(a, b int) int {
	for a != b {
		for f.position[a] > f.position[b] {
			a = f.idom[a]
		}
		for f.position[b] > f.position[a] {
			b = f.idom[b]
		}
	}
	return a
}

// markLoopHeaders finds loop headers and jump targets. It returns false for an irreducible graph:
// a loop that is entered other than at its header.
func (f *controlFlow) markLoopHeaders() bool {
	f.isLoopHeader, f.isJumpTarget = make([]bool, len(f.blocks)), make([]bool, len(f.blocks))
	for _, n := range f.order {
		for _, next := range f.successors(n) {
			if f.isBackEdge(n, next) {
				if f.commonDominator(n, next) != next {
					return false
				}
				f.isLoopHeader[next] = true
			}
		}
		for _, next := range f.blocks[n].jumps {
			f.isJumpTarget[next] = true
		}
	}
	return true
}

// isBackEdge says whether an edge leads back in the order.
func (f *controlFlow) isBackEdge(from, to int) bool { return f.position[to] <= f.position[from] }
