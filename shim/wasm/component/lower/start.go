package lower

import (
	"encoding/binary"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// startName is the export of a command.
const startName = "_start"

// Names of what the modules import that call a component, beside the function of the component.
const (
	exitName     = "exit"
	callbackName = "callback"
)

// starter is a core module that exports _start: it calls "run", then "post-return" if the component
// has one, and then "exit" with an error if run returned one. A result that is neither ok nor an
// error is a trap.
func starter(postReturn bool) []byte {
	const (
		i32        = 0x7f
		form       = 0x60
		runType    = 0 // [] -> [i32]
		takesType  = 1 // [i32] -> []
		startType  = 2 // [] -> []
		opCall     = 0x10
		opLocalGet = 0x20
		opLocalSet = 0x21
		opConst    = 0x41
		opGreater  = 0x4b // i32.gt_u
		opIf       = 0x04
		noResult   = 0x40
		opTrap     = 0x00
		opEnd      = 0x0b
	)
	imports := [][]byte{function("run", runType), function(exitName, takesType)}
	body := []byte{1, 1, i32, opCall, 0, opLocalSet, 0}
	body = append(body, opLocalGet, 0, opConst, 1, opGreater, opIf, noResult, opTrap, opEnd)
	if postReturn {
		imports = append(imports, function("post-return", takesType))
		body = append(body, opLocalGet, 0, opCall, 2)
	}
	body = append(body, opLocalGet, 0, opIf, noResult, opConst, 1, opCall, 1, opEnd, opEnd)
	return caller([][]byte{{form, 0, 1, i32}, {form, 1, i32, 0}, {form, 0, 0}}, imports, startName, startType, body)
}

// caller is a core module with types and imports that exports one function of its own, which has a
// type and a body.
func caller(types, imports [][]byte, export string, of byte, body []byte) []byte {
	return format.Join([]format.Section{
		format.NewSection(format.SectionType, vector(types...)),
		format.NewSection(format.SectionImport, vector(imports...)),
		format.NewSection(format.SectionFunction, vector([]byte{of})),
		format.NewSection(format.SectionExport, vector(append(name(export), format.KindFunction, byte(len(imports))))),
		format.NewSection(format.SectionCode, vector(append(binary.AppendUvarint(nil, uint64(len(body))), body...))),
	})
}

// function is an import of a function, from a module of its own name.
func function(called string, of byte) []byte {
	return append(append(name(called), name(called)...), format.KindFunction, of)
}

func name(s string) []byte { return append(binary.AppendUvarint(nil, uint64(len(s))), s...) }

func vector(items ...[]byte) []byte {
	all := binary.AppendUvarint(nil, uint64(len(items)))
	for _, i := range items {
		all = append(all, i...)
	}
	return all
}
