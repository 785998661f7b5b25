package component

import "github.com/sunaba-project/sunaba/shim/wasm/format"

// coreType reads a type of the core level: of functions or of modules.
func (r *reader) coreType(s *scope) *CoreType {
	t := &CoreType{Offset: r.at()}
	switch t.Form = r.octet(); t.Form {
	case FormFunction:
		t.Params, t.Results = r.coreValues(), r.coreValues()
	case FormModule:
		r.moduleType(s, t)
	default:
		r.d.fail(t.Offset, "core type 0x%02x is not known: those of functions and modules are", t.Form)
	}
	return t
}

func (r *reader) coreValues() []byte {
	var all []byte
	for range r.count("core types") {
		all = append(all, r.coreValue())
	}
	return all
}

// coreValue reads a core type of values, and returns its first byte.
func (r *reader) coreValue() byte {
	before := r.at()
	b := r.octet()
	switch {
	case b >= 0x7b && b <= 0x7f: // numbers and vectors
	case b >= 0x69 && b <= 0x74: // references by a name of their own
	case b == 0x63 || b == 0x64: // references to a type
		if r.Long(); r.Bad {
			r.d.fail(before, "a core type is cut off")
		}
	default:
		r.d.fail(before, "core type 0x%02x of values is not known", b)
	}
	return b
}

// moduleType reads the declarations of the type of a core module.
func (r *reader) moduleType(outer *scope, t *CoreType) {
	s := r.inner(outer, t.Offset)
	for range r.count("declarations") {
		before := r.at()
		switch b := r.octet(); b {
		case 0:
			e := CoreExtern{Module: r.name(), Name: r.name()}
			e.Kind = r.coreExtern(s)
			t.Imports = append(t.Imports, e)
		case 1:
			inner := r.coreType(s)
			if inner.Form == FormModule {
				r.d.fail(before, "the type of a module defines one of a module")
			}
			r.define(s, before, SortCoreType, inner)
		case 2:
			r.expect(0x10, "core sort of an alias")
			r.expect(1, "form of an alias")
			from := s
			for range r.outerCount(s) {
				from = from.outer
			}
			r.define(s, before, SortCoreType, at[CoreType](r, from, SortCoreType))
		case 3:
			e := CoreExtern{Name: r.name()}
			e.Kind = r.coreExtern(s)
			t.Exports = append(t.Exports, e)
		default:
			r.d.fail(before, "declaration 0x%02x of a module is not known", b)
		}
	}
}

// coreExtern reads what an import or export of a core module is, and returns its kind.
func (r *reader) coreExtern(s *scope) byte {
	before := r.at()
	kind := r.octet()
	switch kind {
	case format.KindFunction:
		r.index(s, SortCoreType)
	case format.KindTable:
		r.coreValue()
		r.limits()
	case format.KindMemory:
		r.limits()
	case format.KindGlobal:
		r.coreValue()
		r.flag("mutability of a global")
	case format.KindTag:
		r.expect(0, "attribute of a tag")
		r.index(s, SortCoreType)
	default:
		r.d.fail(before, "an import or export of kind 0x%02x is not known", kind)
	}
	return kind
}

func (r *reader) limits() {
	before := r.at()
	if r.Limits(); r.Bad {
		r.d.fail(before, "limits are not well-formed or cut off")
	}
}
