package compile

import (
	"slices"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// flow is how control passes through a function of Go's. Its body is
//
//	global.get 0, local.set 1, (block), (loop), block …, local.get 0, br_table …, end,
//	chunk 0, end, chunk 1, end, …, (end, unreachable), (end, i32.const 1), end
//
// The table leads to the chunk whose number's place its parameter gives, local 0: to the first of them when the function is
// called, to another when a goroutine goes on that was put to sleep in there. A jump sets local 0 and goes back to the
// loop, so that any chunk seems to follow any other; flow knows which do.
type flow struct {
	body   []byte
	code   []instruction
	table  []uint32 // the chunk for each value of local 0; the last is that for all others
	chunks []chunk
	loop   bool // there is one
	lone   bool // no chunk reads local 0 but where it has set it
	entry  int  // the first instruction of the loop, or else of the blocks

	order  []int   // the chunks that can follow the first one, each behind those that it cannot do without
	number []int   // the place of each in order, -1 = none
	above  []int   // the nearest chunk that every way to this one leads through
	below  [][]int // the chunks that this one is above of, in their order
	repeat []bool  // jumps lead back to it
	jumped []bool  // jumps lead to it
	ways   []int   // how many jumps do, and the chunk before it
}

// chunk is the code between two entries.
type chunk struct {
	first, end int   // its instructions
	falls      bool  // into the next chunk
	stops      bool  // behind its end is unreachable
	jumps      []int // to these chunks
}

// newFlow finds how control passes, or declines with false what Go's compiler does not write.
func newFlow(body []byte, code []instruction) (*flow, bool) {
	f := &flow{body: body, code: code}
	if !f.readHead() {
		return nil, false
	}
	f.sort()
	f.findAbove()
	return f, f.markRepeats()
}

func isEmptyType(i *instruction) bool { return i.value == emptyType }

// readHead reads the body to the table and cuts what follows into chunks.
func (f *flow) readHead() bool {
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
			f.loop = true
		default:
			return false
		}
	}
	f.entry = first
	if f.loop {
		f.entry--
	}
	return f.readChunks(t+2, count)
}

// readChunks cuts the instructions from first on into chunks.
func (f *flow) readChunks(first, count int) bool {
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
			f.chunks = append(f.chunks, chunk{first: first, end: i, falls: first == i || !endsWay(f.code[i-1].op)})
			if first = i + 1; len(f.chunks) == count {
				return f.readTail(i) && f.readJumps()
			}
		}
	}
	return false
}

// endsWay says whether control never passes to what follows an instruction.
func endsWay(op byte) bool { return op == opBr || op == opReturn || op == opUnreachable }

// readTail reads what follows the last chunk.
func (f *flow) readTail(i int) bool {
	last := &f.chunks[len(f.chunks)-1]
	tail := f.code[i:]
	if f.loop {
		tail = tail[1:]
	}
	stops := len(tail) > 0 && tail[0].op == opUnreachable
	if stops {
		tail = tail[1:]
	}
	if last.falls {
		if !f.loop || !stops {
			return false
		}
		last.falls, last.stops = false, true
	}
	for i := range tail {
		if one := &tail[i]; one.op != opEnd && (one.op != opI32Const || one.value != 1) {
			return false
		}
	}
	return true
}

func (f *flow) readJumps() bool {
	f.lone, f.ways = true, make([]int, len(f.chunks))
	for n := range f.chunks {
		c := &f.chunks[n]
		if c.falls {
			f.ways[n+1]++
		}
		nest := 0
		for i := c.first; i < c.end; i++ {
			switch f.code[i].op {
			case opLocalGet:
				if f.code[i].value == 0 && (f.code[i-1].op != opI32Const || f.code[i-2].op != opLocalSet || f.code[i-2].value != 0) {
					f.lone = false
				}
			case opLocalTee:
				f.lone = f.lone && f.code[i].value != 0
			case opBlock, opLoop, opIf:
				nest++
			case opEnd:
				nest--
			case opBr, opBrIf:
				to, kind := f.branch(i, nest, n)
				if kind == unknownBranch {
					return false
				}
				if kind != jump {
					continue
				}
				f.ways[to]++
				if !slices.Contains(c.jumps, to) {
					c.jumps = append(c.jumps, to)
				}
			}
		}
	}
	return true
}

// Kinds of branches: what is not known, within a chunk, to a chunk, and out of the function.
const (
	unknownBranch = iota
	inner
	jump
	outer
)

// branch tells where a branch in a chunk leads that lies in so many blocks there.
func (f *flow) branch(i, nest, chunk int) (to, kind int) {
	depth := int(f.code[i].value) - nest
	switch open := len(f.chunks) - 1 - chunk; {
	case depth < 0:
		return 0, inner
	case depth < open:
		return 0, unknownBranch
	case depth > open || !f.loop:
		return 0, outer
	}
	if set, value := &f.code[i-1], &f.code[i-2]; f.code[i].op != opBr || set.op != opLocalSet || set.value != 0 || value.op != opI32Const {
		return 0, unknownBranch
	}
	place := min(uint64(uint32(f.code[i-2].value)), uint64(len(f.table)-1))
	return int(f.table[place]), jump
}

// outside is how many blocks of the function an outer branch leaves open, counted at its own place.
func (f *flow) outside(i, nest, chunk int) int {
	depth := int(f.code[i].value) - nest - (len(f.chunks) - 1 - chunk)
	if f.loop {
		depth--
	}
	return depth
}

// follow are the chunks that may follow a chunk, the first last.
func (f *flow) follow(n int) []int {
	all := slices.Clone(f.chunks[n].jumps)
	if f.chunks[n].falls {
		all = append(all, n+1)
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all
}

// sort finds the chunks that can follow the first, in reverse postorder, and those first that are first in the function: Go's
// compiler has put behind what it thinks unlikely.
func (f *flow) sort() {
	type visit struct {
		chunk int
		rest  []int
	}
	seen := make([]bool, len(f.chunks))
	seen[0] = true
	for path := []visit{{0, f.follow(0)}}; len(path) > 0; {
		v := &path[len(path)-1]
		if len(v.rest) == 0 {
			f.order = append(f.order, v.chunk)
			path = path[:len(path)-1]
			continue
		}
		next := v.rest[0]
		v.rest = v.rest[1:]
		if !seen[next] {
			seen[next] = true
			path = append(path, visit{next, f.follow(next)})
		}
	}
	slices.Reverse(f.order)
	f.number = slices.Repeat([]int{-1}, len(f.chunks))
	for i, n := range f.order {
		f.number[n] = i
	}
}

// findAbove finds the immediate dominators, by the algorithm of Cooper, Harvey and Kennedy.
func (f *flow) findAbove() {
	before := make([][]int, len(f.chunks))
	for _, n := range f.order {
		for _, next := range f.follow(n) {
			before[next] = append(before[next], n)
		}
	}
	f.above = slices.Repeat([]int{-1}, len(f.chunks))
	f.above[0] = 0
	for changed := true; changed; {
		changed = false
		for _, n := range f.order[1:] {
			one := -1
			for _, p := range before[n] {
				switch {
				case f.above[p] < 0:
				case one < 0:
					one = p
				default:
					one = f.common(one, p)
				}
			}
			if f.above[n] != one {
				f.above[n], changed = one, true
			}
		}
	}
	f.below = make([][]int, len(f.chunks))
	for _, n := range f.order[1:] {
		f.below[f.above[n]] = append(f.below[f.above[n]], n)
	}
}

// common is the nearest chunk above both.
func (f *flow) common(a, b int) int {
	for a != b {
		for f.number[a] > f.number[b] {
			a = f.above[a]
		}
		for f.number[b] > f.number[a] {
			b = f.above[b]
		}
	}
	return a
}

// markRepeats finds the chunks that jumps lead back to. It declines with false jumps into the middle of what repeats.
func (f *flow) markRepeats() bool {
	f.repeat, f.jumped = make([]bool, len(f.chunks)), make([]bool, len(f.chunks))
	for _, n := range f.order {
		for _, next := range f.follow(n) {
			if f.back(n, next) {
				if f.common(n, next) != next {
					return false
				}
				f.repeat[next] = true
			}
		}
		for _, next := range f.chunks[n].jumps {
			f.jumped[next] = true
		}
	}
	return true
}

// back says whether the way from one chunk to another leads back.
func (f *flow) back(from, to int) bool { return f.number[to] <= f.number[from] }
