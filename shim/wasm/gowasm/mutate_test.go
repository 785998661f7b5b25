package gowasm

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
)

// mutate changes one instruction or one piece of a body, or declines with nil.
func mutate(r *rand.Rand, body []byte, h header) []byte {
	code, ok := decode(nil, body, h.start)
	if !ok {
		return nil
	}
	if r.IntN(3) == 0 {
		return rearrange(r, body, code, h.locals)
	}
	one := &code[r.IntN(len(code))]
	var to []byte
	switch op := one.op; {
	case r.IntN(4) == 0:
		to = bytes.Repeat([]byte{opNop}, int(one.end-one.at))
	case op >= opLocalGet && op <= opLocalTee:
		to = append(to, op, byte(r.IntN(12)))
	case op == opBr || op == opBrIf:
		to = append(to, op, byte(r.IntN(int(one.value)+3)))
	case op >= opLoadFirst && op <= opStoreLast:
		to = binary.AppendUvarint([]byte{op, byte(one.align)}, uint64(max(one.value+int64(r.IntN(5)-2)*4, 0)))
	case op == opI32Const || op == opI64Const:
		to = appendSigned([]byte{op}, one.value+int64(r.IntN(5)-2)*8)
	case op == opCall:
		to = []byte{op, byte(1 + r.IntN(2))}
	case op > opF64Const && op <= opNumericLast:
		to = []byte{op ^ byte(1<<r.IntN(3))}
	default:
		return nil
	}
	if bytes.Equal(to, body[one.at:one.end]) {
		return nil
	}
	return append(append(bytes.Clone(body[:one.at]), to...), body[one.end:]...)
}

// piece finds straight-line code that leaves so many operands more than there were before, and uses
// none of those.
func piece(r *rand.Rand, code []instruction, more int) (first, end int, ok bool) {
	first = r.IntN(len(code))
	var ends []int
	for k, height := first, 0; k < min(first+20, len(code)); k++ {
		takes, gives, plain := code[k].operands()
		if !plain || height < takes {
			break
		}
		if height += gives - takes; height == more {
			ends = append(ends, k+1)
		}
	}
	if len(ends) == 0 {
		return 0, 0, false
	}
	return first, ends[r.IntN(len(ends))], true
}

// rearrange leaves out, moves or repeats a statement, or puts a local in place of a value. It
// declines with nil.
func rearrange(r *rand.Rand, body []byte, code []instruction, locals uint32) []byte {
	kind := r.IntN(4)
	first, end, ok := piece(r, code, kind/3)
	if !ok {
		return nil
	}
	from, to := code[first].at, code[end-1].end
	statement, place := body[from:to], code[min(max(first+r.IntN(30)-15, 0), len(code)-1)].at
	switch {
	case kind == 0:
		return append(bytes.Clone(body[:from]), body[to:]...)
	case kind == 1 && place <= from:
		return bytes.Join([][]byte{body[:place], statement, body[place:from], body[to:]}, nil)
	case kind == 1 && place >= to:
		return bytes.Join([][]byte{body[:from], body[to:place], statement, body[place:]}, nil)
	case kind == 2:
		return bytes.Join([][]byte{body[:place], statement, body[place:]}, nil)
	case kind == 3:
		local := binary.AppendUvarint([]byte{opLocalGet}, uint64(r.IntN(int(locals))))
		return bytes.Join([][]byte{body[:from], local, body[to:]}, nil)
	}
	return nil
}

// stale returns bodies in which a local is read in place of a word of the frame that it was put
// into, as if the word were the same still: one for each place where the word is read.
func stale(body []byte, h header) (all [][]byte) {
	code, ok := decode(nil, body, h.start)
	if !ok {
		return nil
	}
	for k := 3; k < len(code); k++ {
		set := &code[k]
		if (set.op == opLocalTee || set.op == opLocalSet) && code[k-1].op == opI32WrapI64 && code[k-2].op == opI64Load && code[k-3].op == opLocalGet {
			local := binary.AppendUvarint([]byte{opLocalGet}, uint64(set.value))
			all = append(all, bytes.Join([][]byte{body[:code[k-3].at], local, body[set.at:]}, nil))
		}
	}
	return all
}
