package wasitest

import "encoding/binary"

// Function is a function that the guest imports. Params has a letter for each parameter: i for i32,
// I for i64.
type Function struct {
	Module, Name, Params string
	NoResult             bool // else an i32
}

// Trampolines encodes a WebAssembly module that imports functions and exports, under the same
// names, functions that pass their parameters on. It has two pages of memory.
func Trampolines(functions []Function) []byte {
	m := module{pages: 2}
	for _, f := range functions {
		results := "i"
		if f.NoResult {
			results = ""
		}
		m.pass(Lowered{Module: f.Module, Name: f.Name, Params: f.Params, Results: results}, f.Name)
	}
	return m.bytes()
}

// Lowered is a function that a lowered component imports, with letters for its results too.
type Lowered struct{ Module, Name, Params, Results string }

// Export is the name under which Component passes calls on.
func (f Lowered) Export() string { return f.Module + "#" + f.Name }

// Own is a function of the module's own. It has one local, an i32, behind its parameters.
type Own struct {
	Export, Params, Results string
	Body                    []byte // without its end
}

// ReallocName is the export of Component's modules that allocates memory, from the third page on,
// and frees none.
const ReallocName = "cabi_realloc"

// realloc is that function.
var realloc = Own{Export: ReallocName, Params: "iiii", Results: "i", Body: []byte{
	0x23, 0, 0x20, 2, 0x6a, 0x41, 1, 0x6b, // next + align - 1
	0x41, 0, 0x20, 2, 0x6b, 0x71, 0x22, 4, // & -align
	0x20, 3, 0x6a, 0x24, 0, 0x20, 4, // next = it + size
}}

// Component encodes a module as a component is lowered to: it imports functions, passes calls on
// under the name that Export says, and has so many pages of memory, a realloc and these functions
// of its own. Imported functions are numbered from 0.
func Component(functions []Lowered, pages int, own ...Own) []byte {
	m := module{pages: pages}
	for _, f := range functions {
		m.pass(f, f.Export())
	}
	for _, f := range append(own, realloc) {
		m.own(f)
	}
	return m.bytes()
}

// module is a module under construction.
type module struct {
	pages   int
	imports []Lowered
	funcs   []Own
}

// pass adds an import and an export that passes calls on to it.
func (m *module) pass(f Lowered, export string) {
	var body []byte
	for j := range f.Params {
		body = append(append(body, 0x20), leb(j)...)
	}
	body = append(append(body, 0x10), leb(len(m.imports))...)
	m.imports = append(m.imports, f)
	m.own(Own{Export: export, Params: f.Params, Results: f.Results, Body: body})
}

func (m *module) own(f Own) { m.funcs = append(m.funcs, f) }

func (m *module) bytes() []byte {
	types, imports, funcs, exports, bodies := section{id: 1}, section{id: 2}, section{id: 3}, section{id: 7}, section{id: 10}
	exports.add(name("memory"), []byte{2, 0})
	for i, f := range m.imports {
		types.add([]byte{0x60}, letters(f.Params), letters(f.Results))
		imports.add(name(f.Module), name(f.Name), []byte{0}, leb(i))
	}
	for i, f := range m.funcs {
		types.add([]byte{0x60}, letters(f.Params), letters(f.Results))
		funcs.add(leb(len(m.imports) + i))
		exports.add(name(f.Export), []byte{0}, leb(len(m.imports)+i))
		body := append(append([]byte{1, 1, 0x7f}, f.Body...), 0x0b)
		bodies.add(leb(len(body)), body)
	}
	memory, globals := section{id: 5}, section{id: 6}
	memory.add([]byte{0}, leb(m.pages))
	globals.add([]byte{0x7f, 1, 0x41, 0x80, 0x80, 8, 0x0b}) // i32, mutable, 128 KiB
	out := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range []section{types, imports, funcs, memory, globals, exports, bodies} {
		out = append(out, s.bytes()...)
	}
	return out
}

// letters encodes value types.
func letters(types string) []byte {
	out := leb(len(types))
	for _, t := range types {
		out = append(out, map[rune]byte{'i': 0x7f, 'I': 0x7e}[t])
	}
	return out
}

// section is a section that is a vector of entries.
type section struct {
	id    byte
	count int
	body  []byte
}

func (s *section) add(parts ...[]byte) {
	s.count++
	for _, p := range parts {
		s.body = append(s.body, p...)
	}
}

func (s section) bytes() []byte {
	body := append(leb(s.count), s.body...)
	return append(append([]byte{s.id}, leb(len(body))...), body...)
}

func leb(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func name(s string) []byte { return append(leb(len(s)), s...) }
