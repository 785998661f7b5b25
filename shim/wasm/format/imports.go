package format

import (
	"fmt"
	"strconv"
)

// Kinds of imports and exports.
const (
	KindFunction = 0
	KindTable    = 1
	KindMemory   = 2
	KindGlobal   = 3
	KindTag      = 4 // of exception handling
)

// FuncType is the type of a function. Value types are as the binary format has them.
type FuncType struct{ Params, Results []byte }

// Import is one import of a module. Which fields count depends on Kind.
type Import struct {
	Module, Name string
	Kind         byte
	FuncType            // of a function
	Element      byte   // of a table
	Limits       Limits // of a table or memory
}

// KindName is what a kind of imports and exports is called.
func KindName(kind byte) string {
	kinds := []string{"function", "table", "memory", "global", "tag"}
	if int(kind) < len(kinds) {
		return kinds[kind]
	}
	return "kind " + strconv.Itoa(int(kind))
}

// NoFunction says, in the words of every refusal, why an import that is no function cannot be had.
func (i Import) NoFunction() string {
	return fmt.Sprintf("import %q.%q is missing: the host has functions, and no %s", i.Module, i.Name, KindName(i.Kind))
}

// formFunction is the first byte of the type of a function.
const formFunction = 0x60

// Types reads the types of a module. It declines with false what it does not understand.
func Types(sections []Section) ([]FuncType, bool) {
	return vector(sections, SectionType, func(r *Reader) FuncType {
		if r.Octet() != formFunction {
			r.fail()
		}
		return FuncType{r.Bytes(), r.Bytes()}
	})
}

// Imports reads what a module imports, in the order of the module. It declines with false what it
// does not understand.
func Imports(sections []Section) ([]Import, bool) {
	imports := []Import{}
	body := Find(sections, SectionImport)
	if len(body) == 0 {
		return imports, true
	}
	types, ok := Types(sections)
	if !ok {
		return nil, false
	}
	r := Reader{Rest: body}
	for range r.Number() {
		i := Import{Module: string(r.Bytes()), Name: string(r.Bytes()), Kind: r.Octet()}
		switch i.Kind {
		case KindFunction:
			n := r.Number()
			if r.Bad || uint64(n) >= uint64(len(types)) {
				return nil, false
			}
			i.FuncType = types[n]
		case KindTable:
			i.Element, i.Limits = r.Octet(), r.Limits()
		case KindMemory:
			i.Limits = r.Limits()
		case KindGlobal:
			r.Octet()
			r.Octet()
		case KindTag:
			r.Octet()
			r.Number()
		default:
			return nil, false
		}
		if r.Bad {
			return nil, false
		}
		imports = append(imports, i)
	}
	return imports, true
}
