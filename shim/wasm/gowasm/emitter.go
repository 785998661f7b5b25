package gowasm

import "encoding/binary"

// emitter writes instructions, and knows the constructs that are open.
type emitter struct {
	out    []byte
	labels []int // what each open construct is branched to for, from the outermost on: a block n, or ^n for a loop header
}

func (e *emitter) open(op byte, label int) {
	e.out = append(e.out, op, emptyType&0x7f)
	e.labels = append(e.labels, label)
}

func (e *emitter) close() {
	e.out = append(e.out, opEnd)
	e.labels = e.labels[:len(e.labels)-1]
}

// branchToLabel writes a branch to a label out of nest more constructs of a block. It returns
// false if there is no such label.
func (e *emitter) branchToLabel(op byte, label, nest int) bool {
	for i := len(e.labels) - 1; i >= 0; i-- {
		if e.labels[i] == label {
			e.out = binary.AppendUvarint(append(e.out, op), uint64(len(e.labels)-1-i+nest))
			return true
		}
	}
	return false
}
