package compile

import "bytes"

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

// ReadNames reads the content of a name section (the file NamesName of an entry). Of one that is not
// well-formed it returns what comes before.
func ReadNames(content []byte) Names {
	names := Names{functions: make(map[uint32]string)}
	r := reader{rest: bytes.TrimPrefix(content, []byte(nameTitle))}
	for len(r.rest) > 0 {
		id := r.octet()
		sub := reader{rest: r.bytes()}
		switch id {
		case subsectionModule:
			names.Module = string(sub.bytes())
		case subsectionFunctions:
			for range sub.number() {
				index, name := sub.number(), sub.bytes()
				if sub.bad {
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
