package gowasm

import (
	"encoding/binary"
	"math"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

const typeI32 = 0x7f

// header is the part of a body in front of its instructions.
type header struct {
	groups uint32 // of locals of one type
	first  int    // where the groups start in the body
	start  int    // where the instructions start
	locals uint32 // with the parameter, of which there is one
}

// readHeader reads the header of a body. It returns false unless the first local is an i32, as in
// Go's functions.
func readHeader(body []byte) (h header, ok bool) {
	r := format.Reader{Rest: body}
	h.groups = r.Number()
	h.first = len(body) - len(r.Rest)
	locals, kind := uint64(1), byte(0)
	for g := range h.groups {
		n, k := r.Number(), r.Octet()
		if g == 0 && n > 0 {
			kind = k
		}
		if locals += uint64(n); r.Bad {
			return header{}, false
		}
	}
	h.start, h.locals = len(body)-len(r.Rest), uint32(locals)
	return h, !r.Bad && kind == typeI32 && locals < math.MaxInt32
}

// append appends the header of a body with so many more locals, of type i32.
func (h header) append(out, body []byte, more uint32) []byte {
	out = binary.AppendUvarint(out, uint64(h.groups)+1)
	out = append(out, body[h.first:h.start]...)
	return append(binary.AppendUvarint(out, uint64(more)), typeI32)
}
