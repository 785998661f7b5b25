package inspect

import (
	"errors"
	"slices"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/component"
	"github.com/sunaba-project/sunaba/shim/wasm/component/lower"
	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// Component is what a component has. Sizes, functions and memories of the report are those of its
// core modules together.
type Component struct {
	World   string       `json:"world"` // of WASI, with its version, by what is exported; empty = none
	Imports []Interface  `json:"imports"`
	Exports []Interface  `json:"exports"`
	Modules []CoreModule `json:"modules"`
	// HTTP says that a container of it answers HTTP requests.
	HTTP bool `json:"http,omitempty"`
	// Components is how many components there are within it, at all depths.
	Components int `json:"components"`
	// CoreInstances is how many instances of core modules it makes.
	CoreInstances int `json:"coreInstances"`
	// Async are the canonical operations of WASI 0.3 that it uses, and "async lift" and "async lower".
	Async []string `json:"async,omitempty"`
}

// Interface is an import or export of a component.
type Interface struct {
	Name      string `json:"name"` // "wasi:io/streams@0.2.12"
	Kind      string `json:"kind"` // instance, function, type, …
	Functions int    `json:"functions"`
	Resources int    `json:"resources"`
	WASI      string `json:"wasi,omitempty"` // the release that it is of: "0.2"
}

// CoreModule is a core module in a component.
type CoreModule struct {
	Name      string `json:"name,omitempty"` // in the section of names
	Offset    int64  `json:"offset"`         // in the file, in bytes
	Size      int64  `json:"size"`           // bytes
	Functions int    `json:"functions"`      // that it defines
	Imports   int    `json:"imports"`
	Exports   int    `json:"exports"`
	Instances int    `json:"instances"` // that the component makes of it
}

// component adds what a component has, and why it could not run.
func (r *Report) component(file []byte) {
	c, err := component.Decode(file)
	if err != nil {
		r.refuse("%s", told(err))
		return
	}
	v := &Component{World: c.World(), Imports: []Interface{}, Exports: []Interface{}, Modules: []CoreModule{}}
	parts := counter{}
	for _, i := range c.Imports {
		v.Imports = append(v.Imports, parts.describe(i.Name, i.Sort, i.Type))
	}
	for _, e := range c.Exports {
		v.Exports = append(v.Exports, parts.export(e))
	}
	v.Components = nested(c)
	v.Async = async(c)
	r.Component = v
	sections, err := format.Split(file)
	if err != nil {
		sections = nil // the decoder has read more than these
	}
	customs := slices.DeleteFunc(sections, func(s format.Section) bool { return s.ID != format.SectionCustom })
	r.Sections.Other = r.Size
	names, instances := c.ModuleNames(), map[*component.Module]int{}
	for _, i := range c.CoreInstances {
		if i.Module != nil {
			instances[i.Module]++
			v.CoreInstances++
		}
	}
	for n, m := range c.Modules {
		one, own := r.coreModule(m)
		one.Name, one.Instances = names[uint32(n)], instances[m]
		v.Modules = append(v.Modules, one)
		customs = append(customs, own...)
	}
	r.origin(customs)
	r.lowered(c)
}

// lowered looks at the module that is made of the component, and refuses one of which none is made.
func (r *Report) lowered(c *component.Component) {
	made, err := lower.Decoded(c)
	if refused, ok := errors.AsType[*component.RefusedError](err); ok {
		for _, why := range refused.Reasons {
			r.refuse("%s", why)
		}
		return
	}
	if err != nil {
		r.refuse("%s", told(err))
		return
	}
	sections, err := format.Split(made.Module)
	if err != nil {
		r.refuse("the module made of it is not valid: %v", err)
		return
	}
	exports, _ := format.Exports(sections)
	r.Component.HTTP = slices.ContainsFunc(exports, func(e format.Export) bool { return lower.IsHandle(e.Name) })
	r.obstacles = compile.FindObstacles(sections)
	r.Light = r.expected()
}

// nested counts the components within one.
func nested(c *component.Component) int {
	n := len(c.Components)
	for _, inner := range c.Components {
		n += nested(inner)
	}
	return n
}

// coreModule adds what a core module has to the sums, and returns its custom sections.
func (r *Report) coreModule(m *component.Module) (CoreModule, []format.Section) {
	one := CoreModule{Offset: int64(m.Offset), Size: int64(len(m.Bytes))}
	sections, err := format.Split(m.Bytes)
	if err != nil {
		return one, nil // Refusals says so
	}
	r.Sections.add(sections)
	functions, _ := format.Functions(sections)
	imports, _ := format.Imports(sections)
	exports, _ := format.Exports(sections)
	memories, _ := format.Memories(sections)
	one.Functions, one.Imports, one.Exports = len(functions), len(imports), len(exports)
	r.Functions += one.Functions
	for _, memory := range memories {
		r.addMemory(memory, false)
	}
	return one, slices.DeleteFunc(sections, func(s format.Section) bool { return s.ID != format.SectionCustom })
}

// parts are how many functions and resources an interface has.
type parts struct{ functions, resources int }

// add counts a part; fresh is whether it is a resource of the interface's own.
func (p *parts) add(sort component.Sort, fresh bool) {
	switch {
	case sort == component.SortFunc:
		p.functions++
	case fresh:
		p.resources++
	}
}

// addItem counts a part that the component defines.
func (p *parts) addItem(item component.Item) {
	t, _ := item.Def.(*component.Type)
	p.add(item.Sort, t != nil && t.Defined)
}

// counter counts the parts of types, instances and components, each once, however often a component
// refers to it.
type counter map[any]parts

func (c counter) of(key any, count func(*parts)) parts {
	known, ok := c[key]
	if !ok {
		count(&known)
		c[key] = known
	}
	return known
}

// describe describes an import or export by its type, nil if that is not known.
func (c counter) describe(name string, sort component.Sort, t *component.Type) Interface {
	one := Interface{Name: name, Kind: sort.String()}
	if parsed, ok := component.ParseInterface(name); ok {
		one.WASI = parsed.Release()
	}
	var has parts
	if sort == component.SortInstance && t != nil {
		has = c.of(t, func(p *parts) {
			for _, e := range t.Exports {
				p.add(e.Sort, e.Fresh)
			}
		})
	} else {
		has.add(sort, sort == component.SortType && t != nil && t.Kind == component.Resource)
	}
	one.Functions, one.Resources = has.functions, has.resources
	return one
}

// export describes an export, whose instance may be one of a component within or a list.
func (c counter) export(e *component.Export) Interface {
	t, _ := e.Item.Def.(*component.Type)
	i, _ := e.Item.Def.(*component.Instance)
	if e.As != nil {
		t = e.As.Type
	} else if i != nil {
		t = i.Type
	}
	one := c.describe(e.Name, e.Item.Sort, t)
	if i == nil || t != nil {
		return one
	}
	has := c.of(i, func(p *parts) {
		for _, item := range i.Exports {
			p.addItem(item.Item)
		}
	})
	if i.Component != nil {
		has = c.of(i.Component, func(p *parts) {
			for _, inner := range i.Component.Exports {
				p.addItem(inner.Item)
			}
		})
	}
	one.Functions, one.Resources = has.functions, has.resources
	return one
}

// async are the operations of WASI 0.3 that a component uses, sorted.
func async(c *component.Component) []string {
	var all []string
	seen := map[component.Operation]bool{}
	for _, canon := range c.Canons {
		name := canon.Op.String()
		switch canon.Op {
		case component.Lift, component.Lower:
			if !canon.Options.Async {
				continue
			}
			name = "async " + name
		case component.ResourceNew, component.ResourceDrop, component.ResourceRep:
			continue
		}
		if !seen[canon.Op] {
			seen[canon.Op] = true
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
