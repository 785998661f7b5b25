package component

import "github.com/sunaba-project/sunaba/shim/wasm/format"

// nameSection is the custom section that names definitions.
const nameSection = "component-name"

// ModuleNames are the names of the core modules that the component defines or has from elsewhere, by
// their number in its index space. Like names of functions they are for people only: of a section
// that is not well-formed what comes before counts.
func (c *Component) ModuleNames() map[uint32]string {
	names := map[uint32]string{}
	for _, s := range c.Customs {
		if s.Name == nameSection {
			readNames(s.Content, names)
		}
	}
	return names
}

// readNames reads the subsections that name definitions of a sort.
func readNames(content []byte, names map[uint32]string) {
	const definitions = 1
	for r := (format.Reader{Rest: content}); len(r.Rest) > 0; {
		id := r.Octet()
		sub := format.Reader{Rest: r.Bytes()}
		if id != definitions || sub.Octet() != 0 || sub.Octet() != 0x11 { // the sort of core modules
			continue
		}
		for range sub.Number() {
			index, name := sub.Number(), sub.Bytes()
			if sub.Bad || len(names) == maxModules || len(name) > maxName {
				return
			}
			names[index] = string(name)
		}
	}
}
