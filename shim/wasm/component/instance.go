package component

// coreInstance reads an instance of a core module, or a list of exports.
func (r *reader) coreInstance(s *scope) {
	i := &CoreInstance{Offset: r.at()}
	if !r.flag("form of a core instance") {
		i.Module = at[Module](r, s, SortCoreModule)
		for range r.count("arguments") {
			arg := CoreArg{Name: r.name()}
			r.expect(0x12, "sort of an argument")
			arg.Instance = at[CoreInstance](r, s, SortCoreInstance)
			i.Args = append(i.Args, arg)
		}
	} else {
		i.exports = map[string]Item{}
		for range r.count("exports") {
			before := r.at()
			e := CoreExport{Name: r.name(), Item: Item{Sort: r.coreSort()}}
			if e.Item.Sort > SortCoreTag {
				r.d.fail(before, "a core instance exports a %s", e.Item.Sort)
			}
			e.Item.Def = r.index(s, e.Item.Sort)
			if _, twice := i.exports[e.Name]; twice {
				r.d.fail(before, "a core instance exports %q twice", e.Name)
			}
			i.exports[e.Name] = e.Item
			i.Exports = append(i.Exports, e)
		}
	}
	s.of.CoreInstances = append(s.of.CoreInstances, i)
	r.define(s, i.Offset, SortCoreInstance, i)
}

// instance reads an instance of a component, or a list of exports.
func (r *reader) instance(s *scope) {
	i := &Instance{Offset: r.at()}
	if !r.flag("form of an instance") {
		i.Component = at[Component](r, s, SortComponent)
		i.items = map[string]Item{}
		for range r.count("arguments") {
			before := r.at()
			arg := ItemName{Name: r.name(), Item: r.item(s)}
			if _, twice := i.items[arg.Name]; twice {
				r.d.fail(before, "the argument %q is given twice", arg.Name)
			}
			i.items[arg.Name] = arg.Item
			i.Args = append(i.Args, arg)
		}
	} else {
		i.items = map[string]Item{}
		for range r.count("exports") {
			before := r.at()
			var name Extern
			r.externName(&name)
			e := ItemName{Name: name.Name, Item: r.item(s)}
			if _, twice := i.items[e.Name]; twice {
				r.d.fail(before, "an instance exports %q twice", e.Name)
			}
			i.items[e.Name] = e.Item
			i.Exports = append(i.Exports, e)
		}
	}
	s.of.Instances = append(s.of.Instances, i)
	r.define(s, i.Offset, SortInstance, i)
}

// item reads a sort and an index.
func (r *reader) item(s *scope) Item {
	sort := r.sort()
	return Item{Sort: sort, Def: r.index(s, sort)}
}

// Arg returns what an instance of a component was given for an import.
func (i *Instance) Arg(name string) (Item, bool) {
	if i.Component == nil {
		return Item{}, false
	}
	item, ok := i.items[name]
	return item, ok
}

// alias reads an alias, and defines what it stands for once more.
func (r *reader) alias(s *scope) {
	before := r.at()
	sort := r.sort()
	form := r.octet()
	switch {
	case form == 0 && sort >= SortFunc:
		i := at[Instance](r, s, SortInstance)
		r.define(s, before, sort, r.exportOf(i, sort, r.name(), before))
	case form == 1 && sort <= SortCoreTag:
		i := at[CoreInstance](r, s, SortCoreInstance)
		r.define(s, before, sort, r.coreExportOf(i, sort, r.name(), before))
	case form == 0 && sort == SortCoreModule:
		i := at[Instance](r, s, SortInstance)
		r.define(s, before, sort, r.exportOf(i, sort, r.name(), before))
	case form == 2 && (sort == SortType || sort == SortComponent || sort == SortCoreType || sort == SortCoreModule):
		from := s
		for range r.outerCount(s) {
			from = from.outer
		}
		r.define(s, before, sort, r.index(from, sort))
	default:
		r.d.fail(before, "an alias of form 0x%02x for a %s is not known", form, sort)
	}
}

// outerCount reads how many scopes further out an alias refers to.
func (r *reader) outerCount(s *scope) uint32 {
	before := r.at()
	n := r.number()
	if n > uint32(s.depth) {
		r.d.fail(before, "an alias goes out by %d, and it is %d deep", n, s.depth)
	}
	return n
}

// coreExportOf is what a core instance exports by a name.
func (r *reader) coreExportOf(i *CoreInstance, sort Sort, name string, before int) *CoreItem {
	if i.Module != nil {
		return &CoreItem{Offset: before, Instance: i, Name: name}
	}
	item, ok := i.exports[name]
	if !ok || item.Sort != sort {
		r.d.fail(before, "a core instance exports no %s %q", sort, name)
	}
	return item.Def.(*CoreItem)
}

// exportOf is what an instance exports by a name.
func (r *reader) exportOf(i *Instance, sort Sort, name string, before int) any {
	t := i.Type
	if i.Component != nil {
		t = i.Component.Type
	}
	switch {
	case i.within != nil:
		return seenFrom(i, name, r.exportOf(i.within, sort, name, before), before)
	case t != nil:
		if e := t.exports[name]; e != nil && e.Sort == sort {
			return r.known(e, nil, i, before)
		}
	case i.Component != nil:
		if e := i.Component.exports[name]; e != nil && e.Item.Sort == sort {
			return seenFrom(i, name, e.Item.Def, before)
		}
	default:
		if item, ok := i.items[name]; ok && item.Sort == sort {
			return item.Def
		}
	}
	r.d.fail(before, "an instance exports no %s %q", sort, name)
	return nil
}

// seenFrom is a definition within a component as the one who instantiated that has it.
func seenFrom(i *Instance, name string, def any, before int) any {
	switch def := def.(type) {
	case *Func:
		return &Func{Offset: before, Type: def.Type, Instance: i, Name: name}
	case *Instance:
		return &Instance{Offset: before, Parent: i, Name: name, within: def}
	}
	return def // types, modules and components are the same wherever they are seen
}

// known is a definition of which only the type is known: an import, or an export of such an
// instance.
func (r *reader) known(e *Extern, from *Import, i *Instance, before int) any {
	switch e.Sort {
	case SortFunc:
		return &Func{Offset: before, Type: e.Type, Import: from, Instance: i, Name: e.Name}
	case SortInstance:
		return &Instance{Offset: before, Type: e.Type, Import: from, Parent: i, Name: e.Name}
	case SortComponent:
		return &Component{Offset: before, Type: e.Type, Import: from}
	case SortCoreModule:
		return &Module{Offset: before, Type: e.Core, Import: from}
	case SortValue:
		return &Value{Offset: before, Type: e.Type}
	}
	return e.Type
}

// importOf reads an import of a component.
func (r *reader) importOf(s *scope) {
	i := &Import{Extern: *r.extern(s), Component: s.of}
	s.of.Imports = append(s.of.Imports, i)
	switch {
	case i.Sort == SortInstance:
		i.Type.importedBy(i)
	case i.Fresh:
		i.Type.Owner = i
	}
	r.define(s, i.Offset, i.Sort, r.known(&i.Extern, i, nil, i.Offset))
}

// importedBy makes an import the owner of the resources that its type brings.
func (t *Type) importedBy(i *Import) {
	if t.imported {
		t.Shared = true
		return
	}
	t.imported = true
	for _, e := range t.Exports {
		if e.Fresh {
			e.Type.Owner = i
		}
	}
}

// export reads an export of a component, which defines what it exports once more.
func (r *reader) export(s *scope) {
	var name Extern
	r.externName(&name)
	e := &Export{
		Name: name.Name, Offset: name.Offset, Item: r.item(s),
		Implements: name.Implements, VersionSuffix: name.VersionSuffix, ExternalID: name.ExternalID,
	}
	if e.Item.Sort < SortFunc && e.Item.Sort != SortCoreModule {
		r.d.fail(e.Offset, "a component exports a %s", e.Item.Sort)
	}
	if r.flag("type of an export") {
		e.As = &Extern{Name: e.Name, Offset: e.Offset}
		r.externType(s, e.As)
	}
	if s.of.exports[e.Name] != nil {
		r.d.fail(e.Offset, "a component exports %q twice", e.Name)
	}
	s.of.exports[e.Name] = e
	s.of.Exports = append(s.of.Exports, e)
	r.define(s, e.Offset, e.Item.Sort, e.Item.Def)
}
