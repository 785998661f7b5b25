package component

import (
	"encoding/binary"
	"slices"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// A test builds components of these: each is a piece of the binary format.

func number(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// typeIndex is the index of a type where one of values may stand: a signed number.
func typeIndex(n int) []byte {
	b := number(n)
	if last := len(b) - 1; b[last]&0x40 != 0 {
		b[last] |= 0x80
		b = append(b, 0)
	}
	return b
}

func text(s string) []byte { return append(number(len(s)), s...) }

func cat(pieces ...[]byte) []byte { return slices.Concat(pieces...) }

// vec is a list with its length.
func vec(items ...[]byte) []byte { return cat(append([][]byte{number(len(items))}, items...)...) }

// section is a section with a list of definitions.
func section(id byte, items ...[]byte) []byte { return raw(id, vec(items...)) }

func raw(id byte, body []byte) []byte { return cat([]byte{id}, number(len(body)), body) }

const preamble = "\x00asm" + version

func build(sections ...[]byte) []byte { return cat(append([][]byte{[]byte(preamble)}, sections...)...) }

// named is a name of an import or export.
func named(name string) []byte { return cat([]byte{0}, text(name)) }

// instanceType is a type of instances, of declarations.
func instanceType(declarations ...[]byte) []byte { return cat([]byte{0x42}, vec(declarations...)) }

// imported is an import of the instance of a type.
func imported(name string, instanceType int) []byte {
	return cat(named(name), []byte{5}, number(instanceType))
}

// exported is an export without a type of its own.
func exported(name string, sort byte, index int) []byte {
	return cat(named(name), []byte{sort}, number(index), []byte{0})
}

// module is a core module with memories and functions () -> (), which are exported as m0, f0, ….
func module(memories, functions int) []byte {
	var exports, types, codes, pages [][]byte
	for i := range memories {
		pages = append(pages, []byte{0, 1})
		exports = append(exports, cat(text("m"+string(rune('0'+i))), []byte{format.KindMemory, byte(i)}))
	}
	for i := range functions {
		types = append(types, []byte{0})
		codes = append(codes, []byte{2, 0, 0x0b})
		exports = append(exports, cat(text("f"+string(rune('0'+i))), []byte{format.KindFunction, byte(i)}))
	}
	return format.Join([]format.Section{
		format.NewSection(format.SectionType, []byte{1, 0x60, 0, 0}),
		format.NewSection(format.SectionFunction, vec(types...)),
		format.NewSection(format.SectionMemory, vec(pages...)),
		format.NewSection(format.SectionExport, vec(exports...)),
		format.NewSection(format.SectionCode, vec(codes...)),
	})
}

// Pieces of most components: a module with a memory and two functions, its instance, aliases of
// memory 0 and of core functions 0 and 1, and the type () of functions.
var (
	coreModule   = raw(sectionCoreModule, module(1, 2))
	coreInstance = section(sectionCoreInstance, []byte{0, 0, 0})
	coreAliases  = section(sectionAlias, cat([]byte{0, 2, 1, 0}, text("m0")), cat([]byte{0, 0, 1, 0}, text("f0")), cat([]byte{0, 0, 1, 0}, text("f1")))
	funcType     = section(sectionType, []byte{0x40, 0, 1, 0})
	lifted       = section(sectionCanon, []byte{0, 0, 0, 0, 0})
	// command exports function 0 as run of wasi:cli.
	command = cat(section(sectionInstance, cat([]byte{1}, vec(cat(named("run"), []byte{1, 0})))),
		section(sectionExport, exported("wasi:cli/run@0.2.6", 5, 0)))
)

// whole is a component that has nothing to refuse, with more sections behind.
func whole(more ...[]byte) []byte {
	return build(append([][]byte{coreModule, coreInstance, coreAliases, funcType, lifted, command}, more...)...)
}
