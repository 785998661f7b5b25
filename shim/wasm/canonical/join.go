package canonical

import (
	"encoding/binary"
	"slices"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// Joined is the module of imports that JoinImports has changed.
const Joined = "host"

// JoinImports returns the sections of a lowered component's module with all its imports of one
// module: to make a host module for each interface takes three times as long as one for all of
// them. The imports keep their order, by which machine code knows them. Nothing is changed where
// something else than a function is imported.
func JoinImports(sections []format.Section) []format.Section {
	i := slices.IndexFunc(sections, func(s format.Section) bool { return s.ID == format.SectionImport })
	if i < 0 {
		return sections
	}
	r := format.Reader{Rest: sections[i].Body}
	count := r.Number()
	body := binary.AppendUvarint(nil, uint64(count))
	for range count {
		module, name := string(r.Bytes()), string(r.Bytes())
		if kind := r.Octet(); kind != format.KindFunction || r.Bad {
			return sections
		}
		for _, text := range []string{Joined, joined(module, name)} {
			body = append(binary.AppendUvarint(body, uint64(len(text))), text...)
		}
		body = binary.AppendUvarint(append(body, format.KindFunction), uint64(r.Number()))
	}
	all := slices.Clone(sections)
	all[i] = format.NewSection(format.SectionImport, body)
	return all
}

// joined is the name of an import in the module Joined. Names of interfaces have no "#".
func joined(module, name string) string { return module + "#" + name }
