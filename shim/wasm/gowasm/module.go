package gowasm

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// buildID is what the content of a custom section of Go's linker starts with.
const buildID = "\x0ago:buildid"

// isGo says whether a module comes from Go's linker.
func isGo(sections []format.Section) bool {
	return slices.ContainsFunc(sections, func(s format.Section) bool {
		return s.ID == format.SectionCustom && bytes.HasPrefix(s.Body, []byte(buildID))
	})
}

// goModule is what the rewriting of a function has to know of its module.
type goModule struct {
	goSignature []bool   // of each type: it is that of Go's functions, from i32 to i32
	functions   []uint32 // types of the functions that the module defines
	imports     uint32   // number of imported functions
	serves      bool     // the module can accept connections
	sigpanic    int64    // the function that nil checks call, noFunction until one is found
}

// readGoModule reads a module. It returns false for what it does not understand.
func readGoModule(sections []format.Section) (*goModule, bool) {
	types, ok := format.Types(sections)
	if !ok {
		return nil, false
	}
	imports, ok := format.Imports(sections)
	if !ok {
		return nil, false
	}
	m := &goModule{sigpanic: noFunction}
	for _, i := range imports {
		if i.Kind == format.KindFunction {
			m.imports++
			m.serves = m.serves || i.Name == "sock_accept"
		}
	}
	for _, t := range types {
		m.goSignature = append(m.goSignature, string(t.Params) == "\x7f" && string(t.Results) == "\x7f")
	}
	m.functions, ok = format.Functions(sections)
	return m, ok && !slices.ContainsFunc(m.functions, func(t uint32) bool { return uint64(t) >= uint64(len(types)) })
}

// popsReturn says whether a call is one of a Go function, which leaves the stack pointer 8 above
// where it was called: the return address is popped.
func (m *goModule) popsReturn(i *instruction) bool {
	if i.op == opCallOf {
		return uint64(i.value) < uint64(len(m.goSignature)) && m.goSignature[i.value]
	}
	defined := i.value - int64(m.imports)
	return defined >= 0 && defined < int64(len(m.functions)) && m.goSignature[m.functions[defined]]
}

// rewrite returns the sections of the module with every function of Go's signature rewritten.
// Nothing is verified yet.
func (m *goModule) rewrite(sections []format.Section) ([]format.Section, bool) {
	i := codeSection(sections)
	if i < 0 {
		return nil, false
	}
	r := format.Reader{Rest: sections[i].Body}
	count := r.Number()
	if r.Bad || uint64(count) != uint64(len(m.functions)) {
		return nil, false
	}
	out := make([][]byte, 0, count)
	var f folder
	for _, t := range m.functions {
		body := r.Bytes()
		if m.goSignature[t] {
			if m.serves {
				body = m.addFastPath(body)
			}
			body = f.fold(body)
		}
		out = append(out, body)
	}
	if r.Bad || len(r.Rest) > 0 {
		return nil, false
	}
	return withBodies(sections, out), true
}

func codeSection(sections []format.Section) int {
	return slices.IndexFunc(sections, func(s format.Section) bool { return s.ID == format.SectionCode })
}

// bodiesOf returns the bodies of the functions that a module defines.
func bodiesOf(sections []format.Section) (all [][]byte) {
	r := format.Reader{Rest: format.Find(sections, format.SectionCode)}
	for range r.Number() {
		all = append(all, r.Bytes())
	}
	return all
}

// withBodies returns the sections with other bodies in the code section, which there must be.
func withBodies(sections []format.Section, bodies [][]byte) []format.Section {
	code := binary.AppendUvarint(nil, uint64(len(bodies)))
	for _, body := range bodies {
		code = append(binary.AppendUvarint(code, uint64(len(body))), body...)
	}
	all := slices.Clone(sections)
	all[codeSection(sections)] = format.NewSection(format.SectionCode, code)
	return all
}
