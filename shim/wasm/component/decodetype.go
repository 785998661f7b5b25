package component

// primitives are the types that have no definition, by their bytes.
func primitives() map[byte]*Type {
	all := map[byte]*Type{}
	for i, k := range []Kind{Bool, S8, U8, S16, U16, S32, U32, S64, U64, F32, F64, Char, String} {
		all[0x7f-byte(i)] = &Type{Kind: k}
	}
	all[0x64] = &Type{Kind: ErrorContext}
	for _, t := range all {
		t.flat, t.layout = t.flatten(), t.layOut()
	}
	return all
}

// typeReader reads types and what has a type, in a scope.
type typeReader struct {
	*reader
	s *scope
}

func (r *reader) types(s *scope) typeReader { return typeReader{r, s} }

// typeDefinition reads a type and defines it.
func (r typeReader) typeDefinition() {
	before := r.at()
	t := r.typeOf()
	if r.s.of != nil {
		r.s.of.Types = append(r.s.of.Types, t)
	}
	r.define(r.s, before, SortType, t)
}

// typeOf reads a type of any kind.
func (r typeReader) typeOf() *Type {
	t := &Type{Offset: r.at()}
	b := r.octet()
	if p := r.d.primitive[b]; p != nil {
		return p
	}
	switch b {
	case 0x72:
		t.Kind, t.Fields = Record, r.fields("fields")
	case 0x71:
		t.Kind, t.Fields = Variant, r.cases()
	case 0x70:
		t.Kind, t.Of = List, r.valueType()
	case 0x67:
		t.Kind, t.Of, t.Length = FixedList, r.valueType(), r.number()
	case 0x6f:
		t.Kind = Tuple
		for range r.count("types") {
			t.Fields = append(t.Fields, Field{Type: r.valueType()})
		}
	case 0x6e:
		t.Kind, t.Fields = Flags, r.labels()
	case 0x6d:
		t.Kind, t.Fields = Enum, r.labels()
	case 0x6b:
		t.Kind, t.Of = Option, r.valueType()
	case 0x6a:
		t.Kind, t.Of, t.Else = Result, r.optionalType(), r.optionalType()
	case 0x69:
		t.Kind, t.Of = Own, r.resource()
	case 0x68:
		t.Kind, t.Of = Borrow, r.resource()
	case 0x66:
		t.Kind, t.Of = Stream, r.optionalType()
	case 0x65:
		t.Kind, t.Of = Future, r.optionalType()
	case 0x63:
		t.Kind, t.Of, t.Else = Map, r.valueType(), r.valueType()
	case 0x40, 0x43:
		t.Kind, t.Async = Function, b == 0x43
		t.Fields = r.fields("parameters")
		t.Result = r.result()
	case 0x41, 0x42:
		r.declarations(t, b == 0x41)
	case 0x3f:
		r.resourceType(t)
	default:
		r.d.fail(t.Offset, "type 0x%02x is not known", b)
	}
	r.measure(t)
	return t
}

// measure completes a type with what follows from its parts, and bounds how deep it is.
func (r typeReader) measure(t *Type) {
	if !t.Kind.isValue() {
		return
	}
	if t.Kind != Own && t.Kind != Borrow {
		for _, f := range t.Fields {
			t.deeper(f.Type)
		}
		t.deeper(t.Of)
		t.deeper(t.Else)
	}
	if t.depth > maxTypeDepth {
		r.d.fail(t.Offset, "a type is more than %d deep", maxTypeDepth)
	}
	if (t.Kind == Record || t.Kind == Variant || t.Kind == Tuple || t.Kind == Flags || t.Kind == Enum) && len(t.Fields) == 0 {
		r.d.fail(t.Offset, "a %s without parts", t.Kind)
	}
	t.flat, t.layout = t.flatten(), t.layOut()
}

func (t *Type) deeper(part *Type) {
	if part != nil {
		t.depth = max(t.depth, part.depth+1)
	}
}

// valueType reads the type of values: a primitive one, or an index.
func (r typeReader) valueType() *Type {
	before := r.at()
	if len(r.Rest) > 0 {
		if p := r.d.primitive[r.Rest[0]]; p != nil {
			r.octet()
			return p
		}
	}
	n := r.Long() // below 0 are the types that have a byte
	if r.Bad || n < 0 || n > 1<<32-1 {
		r.d.fail(before, "a type of values is not known or cut off")
	}
	t := r.pick(r.s, SortType, uint32(n), before).(*Type)
	if !t.Kind.isValue() {
		r.d.fail(before, "a %s is no type of values", t.Kind)
	}
	return t
}

func (r typeReader) optionalType() *Type {
	if r.flag("presence of a type") {
		return r.valueType()
	}
	return nil
}

// kindAt reads the index of a type that has to be of a kind.
func (r typeReader) kindAt(want Kind) *Type {
	before := r.at()
	t := at[Type](r.reader, r.s, SortType)
	if t.Kind != want {
		r.d.fail(before, "a %s is not a %s", t.Kind, want)
	}
	return t
}

func (r typeReader) resource() *Type { return r.kindAt(Resource) }

func (r typeReader) fields(what string) []Field {
	var all []Field
	for range r.count(what) {
		all = append(all, Field{Name: r.name(), Type: r.valueType()})
	}
	return all
}

func (r typeReader) cases() []Field {
	var all []Field
	for range r.count("cases") {
		f := Field{Name: r.name(), Type: r.optionalType()}
		r.expect(0, "end of a case")
		all = append(all, f)
	}
	return all
}

func (r typeReader) labels() []Field {
	var all []Field
	for range r.count("labels") {
		all = append(all, Field{Name: r.name()})
	}
	return all
}

// result reads the result of a function, nil for none.
func (r typeReader) result() *Type {
	if r.flag("form of a result") {
		r.expect(0, "number of named results")
		return nil
	}
	return r.valueType()
}

func (r typeReader) resourceType(t *Type) {
	if r.s.of == nil {
		r.d.fail(t.Offset, "a type defines a resource")
	}
	t.Kind, t.Defined = Resource, true
	r.coreValue()
	if r.flag("presence of a destructor") {
		t.Dtor = at[CoreItem](r.reader, r.s, SortCoreFunc)
	}
}

// declarations reads the type of a component or of an instance.
func (r typeReader) declarations(t *Type, component bool) {
	t.Kind, t.exports = InstanceType, map[string]*Extern{}
	if component {
		t.Kind = ComponentType
	}
	r.s = r.inner(r.s, t.Offset)
	imports := map[string]bool{}
	for range r.count("declarations") {
		before := r.at()
		switch b := r.octet(); {
		case b == 0:
			c := r.coreType()
			r.define(r.s, before, SortCoreType, c)
		case b == 1:
			r.typeDefinition()
		case b == 2:
			r.alias(r.s)
		case b == 3 && component:
			e := r.extern()
			if imports[e.Name] {
				r.d.fail(before, "a type imports %q twice", e.Name)
			}
			imports[e.Name] = true
			t.Imports = append(t.Imports, e)
			r.define(r.s, before, e.Sort, r.known(e, nil, nil, before))
		case b == 4:
			e := r.extern()
			if t.exports[e.Name] != nil {
				r.d.fail(before, "a type exports %q twice", e.Name)
			}
			t.exports[e.Name] = e
			t.Exports = append(t.Exports, e)
			r.define(r.s, before, e.Sort, r.known(e, nil, nil, before))
		default:
			r.d.fail(before, "declaration 0x%02x is not known", b)
		}
	}
}

// extern reads the name and type of an import or export.
func (r typeReader) extern() *Extern {
	e := &Extern{}
	r.externName(e)
	r.externType(e)
	return e
}

// externName reads a name with its attributes.
func (r typeReader) externName(e *Extern) {
	e.Offset = r.at()
	form := r.octet()
	if form > 2 {
		r.d.fail(e.Offset, "a name of form 0x%02x is not known", form)
	}
	e.Name = r.name()
	if form < 2 {
		return
	}
	for range r.count("attributes") {
		before := r.at()
		switch b := r.octet(); b {
		case 0:
			e.Implements = r.name()
		case 1:
			e.VersionSuffix = r.name()
		case 2:
			e.ExternalID = r.name()
		default:
			r.d.fail(before, "attribute 0x%02x of a name is not known", b)
		}
	}
}

// externType reads what an import or export is.
func (r typeReader) externType(e *Extern) {
	before := r.at()
	switch b := r.octet(); b {
	case 0:
		r.expect(0x11, "core sort of an import or export")
		e.Sort, e.Core = SortCoreModule, at[CoreType](r.reader, r.s, SortCoreType)
		if e.Core.Form != FormModule {
			r.d.fail(before, "the type of a core module is that of a function")
		}
	case 1:
		e.Sort, e.Type = SortFunc, r.kindAt(Function)
	case 2:
		e.Sort = SortValue
		if r.flag("bound of a value") {
			e.Type = r.valueType()
		} else {
			e.Type = at[Value](r.reader, r.s, SortValue).Type
		}
	case 3:
		e.Sort = SortType
		if e.Fresh = r.flag("bound of a type"); e.Fresh {
			e.Type = &Type{Kind: Resource, Offset: before, Name: e.Name}
		} else {
			e.Type = at[Type](r.reader, r.s, SortType)
		}
	case 4:
		e.Sort, e.Type = SortComponent, r.kindAt(ComponentType)
	case 5:
		e.Sort, e.Type = SortInstance, r.kindAt(InstanceType)
	default:
		r.d.fail(before, "an import or export of sort 0x%02x is not known", b)
	}
}
