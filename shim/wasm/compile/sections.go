package compile

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// Section ids of the binary format.
const (
	sectionCustom = 0
	sectionStart  = 8
)

// strip returns the module without its custom sections, but for the names of functions, which stack
// traces show: DWARF and the like only cost every start. It also tells whether the module has a
// start function. It copies sections whole: the module need not be valid.
func strip(module []byte) (lean []byte, start bool, err error) {
	const header = 8
	if len(module) < header {
		return nil, false, errors.New("module is too short")
	}
	lean = append(make([]byte, 0, len(module)), module[:header]...)
	for rest := module[header:]; len(rest) > 0; {
		id := rest[0]
		size, n := binary.Uvarint(rest[1:])
		if n <= 0 || n > 5 || size > uint64(len(rest)-1-n) {
			return nil, false, errors.New("section is longer than the module")
		}
		end := 1 + n + int(size)
		if id != sectionCustom || isName(rest[1+n:end]) {
			lean = append(lean, rest[:end]...)
		}
		start = start || id == sectionStart
		rest = rest[end:]
	}
	return lean, start, nil
}

// isName says whether a custom section's content is the name section.
func isName(content []byte) bool {
	return bytes.HasPrefix(content, []byte("\x04name"))
}
