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
	types, imports, funcs, exports, bodies := section{id: 1}, section{id: 2}, section{id: 3}, section{id: 7}, section{id: 10}
	exports.add(name("memory"), []byte{2, 0})
	for i, f := range functions {
		params := []byte{0x60}
		params = append(params, leb(len(f.Params))...)
		body := []byte{0} // no locals
		for j, p := range f.Params {
			params = append(params, map[rune]byte{'i': 0x7f, 'I': 0x7e}[p])
			body = append(append(body, 0x20), leb(j)...)
		}
		if f.NoResult {
			params = append(params, 0)
		} else {
			params = append(params, 1, 0x7f)
		}
		body = append(append(append(body, 0x10), leb(i)...), 0x0b)
		types.add(params)
		imports.add(name(f.Module), name(f.Name), []byte{0}, leb(i))
		funcs.add(leb(i))
		exports.add(name(f.Name), []byte{0}, leb(len(functions)+i))
		bodies.add(leb(len(body)), body)
	}
	memory := section{id: 5}
	memory.add([]byte{0, 2})
	out := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range []section{types, imports, funcs, memory, exports, bodies} {
		out = append(out, s.bytes()...)
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
