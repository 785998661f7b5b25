package compile

import (
	"encoding/binary"
	"slices"
)

// opUnreachable is the opcode that traps.
const opUnreachable = 0x00

// bare returns the sections with every function's body replaced by one that traps: what a start has to
// decode and validate of a module whose machine code is there already.
func bare(sections []section) ([]section, bool) {
	i := slices.IndexFunc(sections, func(s section) bool { return s.id == sectionCode })
	if i < 0 {
		return nil, false
	}
	r := reader{rest: sections[i].body}
	count := r.number()
	if r.bad || count == 0 {
		return nil, false
	}
	const noLocals = 0
	body := binary.AppendUvarint(nil, uint64(count))
	for range count {
		body = append(body, 3, noLocals, opUnreachable, opEnd)
	}
	all := slices.Clone(sections)
	all[i] = newSection(sectionCode, body)
	return all, true
}
