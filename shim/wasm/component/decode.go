package component

import (
	"github.com/sunaba-project/sunaba/host/binfmt"
	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// Section ids.
const (
	sectionCustom = iota
	sectionCoreModule
	sectionCoreInstance
	sectionCoreType
	sectionComponent
	sectionInstance
	sectionAlias
	sectionType
	sectionCanon
	sectionStart
	sectionImport
	sectionExport
	sectionValue
)

// version is that of the binary format, with its layer.
const version = "\x0d\x00\x01\x00"

// Decode decodes a component. What it returns refers to the file's bytes.
//
// # Errors
//
// An *Error.
func Decode(file []byte) (c *Component, err error) {
	defer catch(&err)
	d := &decoder{primitive: primitives(), operations: operations()}
	r := &reader{Reader: format.Reader{Rest: file}, d: d, end: len(file)}
	return r.component(nil), nil
}

// component reads a component to the end of what it is in.
func (r *reader) component(outer *scope) *Component {
	c := &Component{Offset: r.at(), Size: len(r.Rest), exports: map[string]*Export{}}
	r.d.spend(c.Offset, &r.d.components, 1, maxComponents, "components")
	s := r.inner(outer, c.Offset)
	s.of = c
	head := r.Rest[:min(len(r.Rest), binfmt.WasmHeader)]
	switch {
	case !binfmt.IsWasm(head) || len(head) < binfmt.WasmHeader:
		r.d.fail(c.Offset, "it is not WebAssembly")
	case !binfmt.IsComponent(head):
		r.d.fail(c.Offset, "it is a core module, not a component")
	case string(head[len(binfmt.WasmMagic):]) != version:
		r.d.fail(c.Offset, "its format has version 0x%02x%02x, and 0x000d is known: build it again with a current tool", head[5], head[4])
	}
	r.Skip(len(head))
	for len(r.Rest) > 0 {
		at := r.at()
		id := r.octet()
		r.sub("a section").section(s, id, at)
	}
	return c
}

// section reads one section.
func (r *reader) section(s *scope, id byte, at int) {
	c := s.of
	var one func()
	switch id {
	case sectionCustom:
		r.d.spend(at, &r.d.definitions, 1, maxDefinitions, "definitions")
		c.Customs = append(c.Customs, Custom{Name: r.name(), Offset: at, Content: r.Rest})
		return
	case sectionCoreModule:
		r.module(s)
		return
	case sectionComponent:
		n := r.component(s)
		c.Components = append(c.Components, n)
		r.define(s, at, SortComponent, n)
		return
	case sectionStart:
		r.start(s)
		r.done("the start section")
		return
	case sectionCoreInstance:
		one = func() { r.coreInstance(s) }
	case sectionCoreType:
		one = func() { t := r.types(s).coreType(); r.define(s, t.Offset, SortCoreType, t) }
	case sectionInstance:
		one = func() { r.instance(s) }
	case sectionAlias:
		one = func() { r.alias(s) }
	case sectionType:
		one = func() { r.types(s).typeDefinition() }
	case sectionCanon:
		one = func() { r.canon(s) }
	case sectionImport:
		one = func() { r.importOf(s) }
	case sectionExport:
		one = func() { r.export(s) }
	case sectionValue:
		one = func() { r.value(s) }
	default:
		r.d.fail(at, "section %d is not known", id)
	}
	for range r.count("definitions") {
		one()
	}
	r.done("a section")
}

// module takes a core module as it is.
func (r *reader) module(s *scope) {
	m := &Module{Offset: r.at(), Bytes: r.Rest}
	if err := binfmt.CheckModule(m.Bytes[:min(len(m.Bytes), binfmt.WasmHeader)]); err != nil {
		r.d.fail(m.Offset, "a core module is not a component")
	}
	r.d.spend(m.Offset, &r.d.modules, 1, maxModules, "core modules")
	s.of.Modules = append(s.of.Modules, m)
	r.define(s, m.Offset, SortCoreModule, m)
}

func (r *reader) start(s *scope) {
	one := &Start{Offset: r.at(), Func: at[Func](r, s, SortFunc)}
	for range r.count("arguments") {
		one.Args = append(one.Args, at[Value](r, s, SortValue))
	}
	before := r.at()
	results := r.number()
	r.d.spend(before, &r.d.definitions, int(min(results, maxDefinitions+1)), maxDefinitions, "definitions")
	for one.Results = range int(results) {
		s.spaces[SortValue] = append(s.spaces[SortValue], &Value{Offset: one.Offset})
	}
	one.Results = int(results)
	s.of.Starts = append(s.of.Starts, one)
}

func (r *reader) value(s *scope) {
	v := &Value{Offset: r.at(), Type: r.types(s).valueType()}
	v.Bytes = r.sub("a value").Rest
	r.define(s, v.Offset, SortValue, v)
}
