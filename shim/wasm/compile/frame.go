package compile

import (
	"encoding/binary"
	"slices"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// opUnreachable is the opcode that traps.
const opUnreachable = 0x00

// withoutBodies returns the sections with every function's body replaced by one that traps: the
// frame, which is all that a start has to decode and validate of a module whose machine code
// exists already.
func withoutBodies(sections []format.Section) ([]format.Section, bool) {
	i := slices.IndexFunc(sections, func(s format.Section) bool { return s.ID == format.SectionCode })
	if i < 0 {
		return nil, false
	}
	r := format.Reader{Rest: sections[i].Body}
	count := r.Number()
	if r.Bad || count == 0 {
		return nil, false
	}
	const noLocals = 0
	body := binary.AppendUvarint(nil, uint64(count))
	for range count {
		body = append(body, 3, noLocals, opUnreachable, opEnd)
	}
	all := slices.Clone(sections)
	all[i] = format.NewSection(format.SectionCode, body)
	return all, true
}
