package format

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// Names are what a module's name section calls its functions.
type Names struct {
	Module    string
	functions map[uint32]string
}

// Subsections of the name section.
const (
	subsectionModule    = 0
	subsectionFunctions = 1
)

// ReadNames reads the content of a name section (the file NamesName of an entry). Of one that is
// not well-formed it returns what comes before.
func ReadNames(content []byte) Names {
	names := Names{functions: make(map[uint32]string)}
	r := Reader{Rest: bytes.TrimPrefix(content, []byte(nameTitle))}
	for len(r.Rest) > 0 {
		id := r.Octet()
		sub := Reader{Rest: r.Bytes()}
		switch id {
		case subsectionModule:
			names.Module = string(sub.Bytes())
		case subsectionFunctions:
			for range sub.Number() {
				index, name := sub.Number(), sub.Bytes()
				if sub.Bad {
					break
				}
				names.functions[index] = string(name)
			}
		}
	}
	return names
}

// Function is the name of a function, "" if it has none.
func (n Names) Function(index uint32) string { return n.functions[index] }

// Any says whether a function's name is one that is looked for.
func (n Names) Any(is func(name string) bool) bool {
	for _, name := range n.functions {
		if is(name) {
			return true
		}
	}
	return false
}

// ExportNames makes a name section of what a module calls the functions that it exports, for one
// that has no other names. It declines with nil a module without such.
func ExportNames(sections []Section) *Section {
	exports, ok := Exports(sections)
	if !ok {
		return nil
	}
	exports = slices.DeleteFunc(exports, func(e Export) bool { return e.Kind != KindFunction || !utf8.ValidString(e.Name) })
	slices.SortStableFunc(exports, func(a, b Export) int { return cmp.Compare(a.Index, b.Index) })
	exports = slices.CompactFunc(exports, func(a, b Export) bool { return a.Index == b.Index })
	if len(exports) == 0 {
		return nil
	}
	list := binary.AppendUvarint(nil, uint64(len(exports)))
	for _, e := range exports {
		list = binary.AppendUvarint(list, uint64(e.Index))
		list = binary.AppendUvarint(list, uint64(len(e.Name)))
		list = append(list, e.Name...)
	}
	body := append([]byte(nameTitle), subsectionFunctions)
	body = binary.AppendUvarint(body, uint64(len(list)))
	s := NewSection(SectionCustom, append(body, list...))
	return &s
}
