package component

import (
	"slices"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// unreadable says why the imports or exports of a core module cannot be read: only types of
// functions of numbers, vectors and plain references are.
func unreadable(sections []format.Section) string {
	const (
		function  = 0x60
		externref = 0x6f // all plain types are this or above
		later     = "uses types of garbage collection or typed function references"
	)
	r := format.Reader{Rest: format.Find(sections, format.SectionType)}
	for range r.Number() {
		switch form := r.Octet(); {
		case r.Bad:
		case form < function && form >= 0x4d: // recursive groups, subtypes, structures, arrays
			return later
		default:
			for _, value := range slices.Concat(r.Bytes(), r.Bytes()) {
				if value < externref {
					return later
				}
			}
		}
		if r.Bad {
			break
		}
	}
	return "is not valid: its imports or exports cannot be read"
}
