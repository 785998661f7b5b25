package component

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// Plan is a component as one needs it to make one core module of it: core instances in the order of
// their instantiation, what each import of theirs is, and what the component exports. Nothing in it
// is an index of the component any more.
type Plan struct {
	Instances []Planned
	Exports   []Lifted
}

// Planned is an instance of a core module. No module has two.
type Planned struct {
	Module  *Module
	Imports []Bound // in the order of the module's imports
}

// Bound is what an import of a core module is bound to: an export of an earlier instance, or a
// function of the host.
type Bound struct {
	format.Import
	Export *CoreExportRef // nil if Host is set
	Host   *HostFunc
}

// CoreExportRef is an export of an instance of a plan.
type CoreExportRef struct {
	Instance int // in Plan.Instances
	Name     string
}

// HostFunc is a function that the host has to provide to a core module. Its core type is that of the
// import that it is bound to.
type HostFunc struct {
	Op Operation // Lower, or what else a Canon does
	// Interface and Name are the function that is lowered ("wasi:io/streams@0.2.12" and
	// "[method]output-stream.write"), or the resource of an operation on resources
	// ("wasi:io/streams@0.2.12" and "output-stream"); "" for other operations.
	Interface, Name string
	Options         PlannedOptions
	Canon           *Canon // with the types that asynchronous operations have
}

// PlannedOptions are canonical options. What is nil is not given.
type PlannedOptions struct {
	Encoding                              Encoding
	Memory, Realloc, PostReturn, Callback *CoreExportRef
	Async                                 bool
}

// Lifted is a function that the component exports.
type Lifted struct {
	Interface string // "" for a function that is exported by itself
	Name      string
	Type      *Type
	Core      CoreExportRef
	Options   PlannedOptions
}

// RefusedError says why there is no plan of a component. Its class is ErrInvalidArgument.
type RefusedError struct{ Reasons []string }

func (e *RefusedError) Error() string {
	return "component cannot be made one module: " + strings.Join(e.Reasons, "; ")
}

// Unwrap returns the error's class.
func (e *RefusedError) Unwrap() error { return errdefs.ErrInvalidArgument }

// maxSteps bounds how many names are followed through instances in all: instances that are made of
// each other can make a path that is long beyond all measure.
const maxSteps = 1 << 20

// planner makes a plan. The first thing that is wrong ends it, as in the decoder.
type planner struct {
	c       *Component
	plan    *Plan
	places  map[*CoreInstance]int
	exports map[*Module]map[string]byte // kinds by name
	steps   int
}

// Plan makes the plan of a component.
//
// # Errors
//
// A *RefusedError, with all of Refusals or with what shows only when names are followed.
func (c *Component) Plan() (_ *Plan, err error) {
	if reasons := c.Refusals(); len(reasons) > 0 {
		return nil, &RefusedError{reasons}
	}
	defer func() {
		switch v := recover().(type) {
		case nil:
		case *RefusedError:
			err = v
		default:
			panic(v)
		}
	}()
	p := &planner{c: c, plan: &Plan{}, places: map[*CoreInstance]int{}, exports: map[*Module]map[string]byte{}}
	for _, i := range c.CoreInstances {
		if i.Module != nil {
			p.instantiate(i)
		}
	}
	for _, e := range c.Exports {
		p.export(e)
	}
	return p.plan, nil
}

func (p *planner) refuse(text string, args ...any) {
	panic(&RefusedError{[]string{fmt.Sprintf(text, args...)}})
}

// instantiate binds what a core module imports.
func (p *planner) instantiate(i *CoreInstance) {
	sections, err := format.Split(i.Module.Bytes)
	if err != nil {
		p.refuse("the core module at byte %d is not valid: %v", i.Module.Offset, err)
	}
	imports, ok := format.Imports(sections)
	exports, also := format.Exports(sections)
	if !ok || !also {
		p.refuse("the core module at byte %d %s", i.Module.Offset, unreadable(sections))
	}
	kinds := make(map[string]byte, len(exports))
	for _, e := range exports {
		kinds[e.Name] = e.Kind
	}
	args := make(map[string]*CoreInstance, len(i.Args))
	for _, a := range i.Args {
		args[a.Name] = a.Instance
	}
	one := Planned{Module: i.Module}
	for _, imp := range imports {
		one.Imports = append(one.Imports, p.bind(i.Module, imp, args[imp.Module]))
	}
	p.exports[i.Module] = kinds
	p.places[i] = len(p.plan.Instances)
	p.plan.Instances = append(p.plan.Instances, one)
}

// bind finds what an import is.
func (p *planner) bind(m *Module, i format.Import, from *CoreInstance) Bound {
	missing := func() {
		p.refuse("the core module at byte %d imports %s %q from %q, which it is not given", m.Offset, format.KindName(i.Kind), i.Name, i.Module)
	}
	b := Bound{Import: i}
	if from == nil {
		missing()
	}
	if from.Module != nil {
		b.Export = p.ref(&CoreItem{Instance: from, Name: i.Name}, i.Kind)
		return b
	}
	item, ok := from.exports[i.Name]
	if !ok || item.Sort != SortCoreFunc+Sort(i.Kind) {
		missing()
	}
	core := item.Def.(*CoreItem)
	if core.Canon == nil {
		b.Export = p.ref(core, i.Kind)
		return b
	}
	b.Host = p.host(core.Canon)
	if core.Canon.Op == Lower {
		params, results := core.Canon.Func.Type.CoreSignature(false, core.Canon.Options)
		if string(params) != string(i.Params) || string(results) != string(i.Results) {
			p.refuse("the core module at byte %d imports %q from %q with another signature than %q of %q has", m.Offset, i.Name, i.Module, b.Host.Name, b.Host.Interface)
		}
	}
	return b
}

// ref is an export of an instance that has been planned.
func (p *planner) ref(item *CoreItem, kind byte) *CoreExportRef {
	if item.Canon != nil {
		p.refuse("a function of the host (at byte %d) is used where one of a core module is expected", item.Canon.Offset)
	}
	have, ok := p.exports[item.Instance.Module][item.Name]
	if !ok || have != kind {
		p.refuse("the core module at byte %d exports no %s %q", item.Instance.Module.Offset, format.KindName(kind), item.Name)
	}
	return &CoreExportRef{Instance: p.places[item.Instance], Name: item.Name}
}

// optional is ref, of what need not be given.
func (p *planner) optional(item *CoreItem, kind byte) *CoreExportRef {
	if item == nil {
		return nil
	}
	return p.ref(item, kind)
}

func (p *planner) options(o Options) PlannedOptions {
	return PlannedOptions{
		Encoding: o.Encoding, Async: o.Async,
		Memory: p.optional(o.Memory, format.KindMemory), Realloc: p.optional(o.Realloc, format.KindFunction),
		PostReturn: p.optional(o.PostReturn, format.KindFunction), Callback: p.optional(o.Callback, format.KindFunction),
	}
}

// host is the function of the host that a canonical definition defines.
func (p *planner) host(c *Canon) *HostFunc {
	h := &HostFunc{Op: c.Op, Canon: c, Options: p.options(c.Options)}
	h.Options.Memory = first(h.Options.Memory, p.optional(c.Memory, format.KindMemory))
	switch c.Op {
	case Lower:
		found := p.resolve(c.Func, nil)
		if found.from == nil {
			p.refuse("it lowers a function that it lifts itself")
		}
		h.Interface, h.Name = found.from.Name, found.name
	case ResourceNew, ResourceDrop, ResourceRep:
		if c.Type.Owner == nil || c.Type.Owner.Component != p.c {
			p.refuse("%s (at byte %d) is for a resource that is no import of the component", c.Op, c.Offset)
		}
		h.Interface, h.Name = c.Type.Owner.Name, c.Type.Name
	}
	return h
}

func first(a, b *CoreExportRef) *CoreExportRef {
	if a != nil {
		return a
	}
	return b
}

// export adds what the component exports by a name.
func (p *planner) export(e *Export) {
	switch def := e.Item.Def.(type) {
	case *Func:
		p.lift("", e.Name, def, nil)
	case *Instance:
		names, in := p.names(def, nil)
		for _, name := range names {
			p.step()
			item, env := p.exportOf(in.instance, name, in.env)
			if f, ok := item.Def.(*Func); ok {
				p.lift(e.Name, name, f, env)
			}
		}
	}
}

// lift adds a function that is exported.
func (p *planner) lift(iface, name string, f *Func, env *env) {
	found := p.resolve(f, env)
	if found.canon == nil {
		p.refuse("it exports %q, which it imports itself", strings.TrimPrefix(iface+"#"+name, "#"))
	}
	c := found.canon
	if c.Core.Canon != nil {
		p.refuse("it lifts a function of the host (at byte %d)", c.Offset)
	}
	p.plan.Exports = append(p.plan.Exports, Lifted{
		Interface: iface, Name: name, Type: c.Type, Core: *p.ref(c.Core, format.KindFunction), Options: p.options(c.Options),
	})
}
