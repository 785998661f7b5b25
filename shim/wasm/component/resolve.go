package component

// env is where a definition stands: in the component that instance is one of, which stands in outer.
// nil is the outermost component.
type env struct {
	instance *Instance
	outer    *env
}

// place is an instance and where it stands.
type place struct {
	instance *Instance
	env      *env
}

// found is what a function is in the end: one that is lifted, or one of an instance that the
// outermost component imports.
type found struct {
	canon *Canon
	from  *Import
	name  string
}

func (p *planner) step() {
	if p.steps++; p.steps > maxSteps {
		p.refuse("what it exports goes through more than %d instances", maxSteps)
	}
}

// resolve follows a function to what it is.
func (p *planner) resolve(f *Func, env *env) found {
	for {
		p.step()
		switch {
		case f.Canon != nil:
			return found{canon: f.Canon}
		case f.Import != nil && env == nil:
			return found{from: f.Import, name: f.Name}
		case f.Import != nil:
			f, env = p.argument(env, f.Import.Name, SortFunc).Def.(*Func), env.outer
			continue
		}
		at := p.settle(place{f.Instance, env})
		if at.instance.Import != nil {
			return found{from: at.instance.Import, name: f.Name}
		}
		item, inner := p.exportOf(at.instance, f.Name, at.env)
		next, ok := item.Def.(*Func)
		if !ok {
			p.refuse("an instance (at byte %d) exports no function %q", f.Instance.Offset, f.Name)
		}
		f, env = next, inner
	}
}

// argument is what a component's instance was given for an import.
func (p *planner) argument(env *env, name string, sort Sort) Item {
	item, ok := env.instance.Arg(name)
	if !ok || item.Sort != sort {
		p.refuse("an instance of a component (at byte %d) is given no %s %q", env.instance.Offset, sort, name)
	}
	return item
}

// settle follows an instance to one that tells what it exports: of a component, a list, or an import
// of the outermost component.
func (p *planner) settle(at place) place {
	for {
		p.step()
		i := at.instance
		switch {
		case i.Import != nil && at.env != nil:
			at = place{p.argument(at.env, i.Import.Name, SortInstance).Def.(*Instance), at.env.outer}
		case i.Parent != nil:
			parent := p.settle(place{i.Parent, at.env})
			if parent.instance.Import != nil {
				p.refuse("it uses %q, an instance in what it imports", i.Name)
			}
			item, inner := p.exportOf(parent.instance, i.Name, parent.env)
			next, ok := item.Def.(*Instance)
			if !ok {
				p.refuse("an instance (at byte %d) exports no instance %q", i.Offset, i.Name)
			}
			at = place{next, inner}
		default:
			return at
		}
	}
}

// exportOf is what a settled instance exports by a name, and where that stands.
func (p *planner) exportOf(i *Instance, name string, at *env) (Item, *env) {
	if i.Component == nil {
		return i.items[name], at
	}
	if e := i.Component.exports[name]; e != nil {
		return e.Item, &env{i, at}
	}
	return Item{}, nil
}

// names are those of what an instance exports.
func (p *planner) names(i *Instance, at *env) ([]string, place) {
	settled := p.settle(place{i, at})
	var names []string
	for _, e := range settled.instance.Exports {
		names = append(names, e.Name)
	}
	if c := settled.instance.Component; c != nil {
		for _, e := range c.Exports {
			names = append(names, e.Name)
		}
	}
	if settled.instance.Import != nil {
		p.refuse("it exports %q, which it imports itself", settled.instance.Import.Name)
	}
	return names, settled
}
