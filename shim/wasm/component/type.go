package component

import "slices"

// Kind is the kind of a type of the component level.
type Kind uint8

// Kinds of types. Those of values come first.
const (
	Bool Kind = iota
	S8
	U8
	S16
	U16
	S32
	U32
	S64
	U64
	F32
	F64
	Char
	String
	ErrorContext // of WASI 0.3's proposals
	Record
	Variant
	List
	FixedList
	Tuple
	Flags
	Enum
	Option
	Result
	Own
	Borrow
	Stream // of WASI 0.3
	Future // of WASI 0.3
	Map
	Function
	Resource
	ComponentType
	InstanceType
)

// isValue says whether values have types of this kind.
func (k Kind) isValue() bool { return k < Function }

// String is what the text format calls the kind.
func (k Kind) String() string {
	return [...]string{
		"bool", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f32", "f64", "char", "string", "error-context",
		"record", "variant", "list", "fixed-length list", "tuple", "flags", "enum", "option", "result", "own", "borrow",
		"stream", "future", "map", "func", "resource", "component", "instance",
	}[k]
}

// Type is a type of the component level. Which fields count depends on Kind. Two types are the same
// if they are the same pointer; others may be equal by their structure.
type Type struct {
	Kind   Kind
	Offset int
	// Fields are those of a record, the cases of a variant (with or without a type), the members
	// of a tuple (without names), the labels of flags and enums (without types), and the parameters
	// of a function.
	Fields []Field
	// Of is the type in a list, option, stream or future (nil = none), what own and borrow handle,
	// the key of a map, and the good result of a result type (nil = none).
	Of *Type
	// Else is the value of a map, and the bad result of a result type (nil = none).
	Else   *Type
	Length uint32 // of a fixed-length list
	Result *Type  // of a function, nil = none
	Async  bool   // of a function

	Imports []*Extern // of a component's type
	Exports []*Extern // of a component's or instance's type

	// Of a resource: Owner is the import that brings it: of an instance that exports it as Name, or
	// of the type itself. Without one a component defines the resource (Defined), or its type is
	// part of the type of what is not known.
	Owner   *Import
	Name    string
	Defined bool
	Dtor    *CoreItem // nil = none
	// Shared is set in an instance's type by which more than one instance is imported: their
	// resources would be one here, and are not.
	Shared bool

	imported bool
	exports  map[string]*Extern
	flat     []byte // core types of a value, as many as maxFlat+1
	layout   Layout // of a value
	depth    int
}

// Field is a part of a type.
type Field struct {
	Name string
	Type *Type
}

// Flattened values, of design/mvp/CanonicalABI.md ("Flattening").
const (
	maxFlat      = 16 // MAX_FLAT_PARAMS
	maxFlatAsync = 4  // MAX_FLAT_ASYNC_PARAMS
	maxResults   = 1  // MAX_FLAT_RESULTS
)

// Core types of values.
const (
	coreI32 = 0x7f
	coreI64 = 0x7e
	coreF32 = 0x7d
	coreF64 = 0x7c
)

// flatten computes what core values a value of the type consists of, from what its parts have.
// No more than one above the greatest number that matters are kept.
func (t *Type) flatten() []byte {
	var all []byte
	add := func(more []byte) { all = append(all, more[:min(len(more), maxFlat+1-len(all))]...) }
	switch t.Kind {
	case S64, U64:
		return []byte{coreI64}
	case F32:
		return []byte{coreF32}
	case F64:
		return []byte{coreF64}
	case String, List, Map:
		return []byte{coreI32, coreI32}
	case Record, Tuple:
		for _, f := range t.Fields {
			add(f.Type.flat)
		}
		return all
	case FixedList:
		for range min(t.Length, maxFlat+1) {
			add(t.Of.flat)
		}
		return all
	case Variant:
		for _, f := range t.Fields {
			all = join(all, f.Type)
		}
	case Option, Result:
		all = join(join(nil, t.Of), t.Else)
	default:
		return []byte{coreI32}
	}
	all = append([]byte{coreI32}, all...) // which case it is
	return all[:min(len(all), maxFlat+1)]
}

// join adds a case to what those before it need.
func join(all []byte, t *Type) []byte {
	if t == nil {
		return all
	}
	all = slices.Clone(all)
	for i, b := range t.flat {
		switch {
		case i == len(all):
			all = append(all, b)
		case all[i] == b:
		case all[i] == coreI32 && b == coreF32, all[i] == coreF32 && b == coreI32:
			all[i] = coreI32
		default:
			all[i] = coreI64
		}
	}
	return all
}

// CoreSignature is the type of the core function that a function of this type is lowered to, or
// lifted from.
func (t *Type) CoreSignature(lift bool, o Options) (params, results []byte) {
	for _, f := range t.Fields {
		params = append(params, f.Type.flat...)
		params = params[:min(len(params), maxFlat+1)]
	}
	if t.Result != nil {
		results = t.Result.flat
	}
	limit := maxFlat
	if o.Async && !lift {
		limit = maxFlatAsync
	}
	if len(params) > limit {
		params = []byte{coreI32}
	}
	switch {
	case lift && o.Async && o.Callback != nil:
		return params, []byte{coreI32}
	case lift && o.Async:
		return params, nil
	case o.Async:
		if len(results) > 0 {
			params = append(params, coreI32)
		}
		return params, []byte{coreI32}
	case len(results) <= maxResults:
		return params, results
	case lift:
		return params, []byte{coreI32}
	}
	return append(params, coreI32), nil
}

// CoreType is a type of the core level. Which fields count depends on Form.
type CoreType struct {
	Offset  int
	Form    byte         // FormFunction or FormModule
	Params  []byte       // of a function
	Results []byte       // of a function
	Imports []CoreExtern // of a module
	Exports []CoreExtern // of a module
}

// Forms of core types.
const (
	FormFunction = 0x60
	FormModule   = 0x50
)

// CoreExtern is an import or export of the type of a core module.
type CoreExtern struct {
	Module string // of an import
	Name   string
	Kind   byte // as package format has it
}
