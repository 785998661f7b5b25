package merge

import (
	"fmt"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// collectHosts numbers the functions of the host that are imported, each once.
func (m *merger) collectHosts(in Input) error {
	type key struct {
		ImportName
		function uint32
	}
	known := map[key]uint32{}
	for n, mod := range m.modules {
		for _, i := range mod.imports {
			host, ok := in.Instances[n].Imports[i.name].(Host)
			if !ok {
				continue
			}
			fail := func(problem string) error { return &LinkError{mod.name, i.name, problem} }
			if i.kind != format.KindFunction {
				return fail(fmt.Sprintf("the host has functions, and no %s", format.KindName(i.kind)))
			}
			if text := string(encodeType(host.Type)); text != m.typeList[i.function] {
				return fail(fmt.Sprintf("the host's function is of the type %s, and %s is needed", typeText(text), typeText(m.typeList[i.function])))
			}
			k := key{ImportName{host.Module, host.Name}, i.function}
			if _, ok := known[k]; !ok {
				known[k] = uint32(len(m.hosts))
				m.hosts = append(m.hosts, host)
				m.functions = append(m.functions, i.function)
			}
			mod.hosts = append(mod.hosts, known[k])
		}
	}
	return nil
}

// link gives each item of each module its index in the output.
func (m *merger) link(in Input) error {
	for _, mod := range m.modules {
		mod.functionsAt = uint32(len(m.functions))
		m.functions = append(m.functions, mod.defined...)
	}
	m.traps = map[uint32]uint32{}
	for n, mod := range m.modules {
		for _, i := range mod.imports {
			problem := m.bind(n, i, in.Instances[n].Imports[i.name])
			if problem != "" {
				return &LinkError{mod.name, i.name, problem}
			}
		}
		if err := m.define(mod); err != nil {
			return fmt.Errorf("instance %q: %w", mod.name, err)
		}
	}
	return nil
}

// bind gives an import of a module the index of what it is bound to, or says why that cannot be.
func (m *merger) bind(n int, i importItem, source Source) (problem string) {
	mod := m.modules[n]
	switch s := source.(type) {
	case Host:
		mod.functions = append(mod.functions, mod.hosts[0])
		mod.hosts = mod.hosts[1:]
		return ""
	case Trap:
		if i.kind != format.KindFunction {
			return fmt.Sprintf("a trap stands for a function, and for no %s", format.KindName(i.kind))
		}
		mod.functions = append(mod.functions, m.trap(i.function))
		return ""
	case Constant:
		return m.bindConstant(mod, i, s)
	case Export:
		if s.Instance < 0 || s.Instance >= n {
			return fmt.Sprintf("instance %d does not come earlier", s.Instance)
		}
		from := m.modules[s.Instance]
		e, ok := from.exports[s.Name]
		if !ok {
			return fmt.Sprintf("instance %q has no export %q", from.name, s.Name)
		}
		if e.kind != i.kind {
			return fmt.Sprintf("a %s is needed, and export %q of instance %q is a %s", format.KindName(i.kind), s.Name, from.name, format.KindName(e.kind))
		}
		if problem := m.bindExport(mod, i, from, e.index); problem != "" {
			return fmt.Sprintf("export %q of instance %q: %s", s.Name, from.name, problem)
		}
		return ""
	}
	return "nothing is bound to it"
}

// trap returns a function of a type that traps.
func (m *merger) trap(function uint32) uint32 {
	n, ok := m.traps[function]
	if !ok {
		n = uint32(len(m.functions))
		m.traps[function] = n
		m.functions = append(m.functions, function)
	}
	return n
}

func (m *merger) bindConstant(mod *module, i importItem, c Constant) (problem string) {
	if i.kind != format.KindGlobal || i.global.mutable || i.global.value < typeF64 {
		return fmt.Sprintf("a constant stands for an immutable global of a number, and for no other %s", format.KindName(i.kind))
	}
	mod.globals = append(mod.globals, uint32(len(m.globals)))
	m.globals = append(m.globals, global{i.global, constant{value: i.global.value, low: c.Bits}})
	return ""
}

func (m *merger) bindExport(mod *module, i importItem, from *module, index uint32) (problem string) {
	switch i.kind {
	case format.KindFunction:
		f := from.functions[index]
		if have := m.functions[f]; have != i.function {
			return fmt.Sprintf("its type is %s, and %s is needed", typeText(m.typeList[have]), typeText(m.typeList[i.function]))
		}
		mod.functions = append(mod.functions, f)
	case format.KindTable:
		t := from.tables[index]
		if have := m.tables[t]; have.element != i.table.element {
			return "its elements are of another type"
		} else if problem := limitsMismatch(have.limits, i.table.limits, "elements"); problem != "" {
			return problem
		}
		mod.tables = append(mod.tables, t)
	case format.KindMemory:
		if problem := limitsMismatch(m.memories[0].limits, i.memory, "pages"); problem != "" {
			return problem
		}
		mod.memories = append(mod.memories, 0)
	case format.KindGlobal:
		g := from.globals[index]
		if have := m.globals[g].globalType; have != i.global {
			return fmt.Sprintf("it is %v, and %v is needed", have, i.global)
		}
		mod.globals = append(mod.globals, g)
	}
	return ""
}

// String implements fmt.Stringer.
func (t globalType) String() string {
	mutable := "immutable"
	if t.mutable {
		mutable = "mutable"
	}
	return mutable + " " + valueName(t.value)
}

// define appends what a module defines, once its imports are bound.
func (m *merger) define(mod *module) error {
	for n := range mod.defined {
		mod.functions = append(mod.functions, mod.functionsAt+uint32(n))
	}
	for _, t := range mod.ownTables {
		mod.tables = append(mod.tables, uint32(len(m.tables)))
		m.tables = append(m.tables, t)
	}
	for _, l := range mod.ownMemories {
		mod.memories = append(mod.memories, 0)
		m.memories = append(m.memories, memory{l, mod.name})
	}
	if len(mod.memories) > 1 {
		return errMemories
	}
	if len(m.memories) > 1 {
		return part(fmt.Sprintf("several memories (instances %q and %q define one each)", m.memories[0].owner, mod.name))
	}
	mod.declared = make([]bool, len(mod.functions))
	if err := m.readGlobals(mod); err != nil {
		return err
	}
	if len(m.tables) > maxItems || len(m.globals) > maxItems || len(m.typeList) > maxItems || len(m.functions) > 2*maxItems {
		return fmt.Errorf("more than %d tables, globals, types or functions: %w", maxItems, ErrTooLarge)
	}
	for name, e := range mod.exports {
		if uint64(e.index) >= uint64(len(mod.space(e.kind))) {
			return invalid("export %q is of %s %d of %d", name, format.KindName(e.kind), e.index, len(mod.space(e.kind)))
		}
		if e.kind == format.KindFunction {
			mod.declared[e.index] = true
		}
	}
	return m.checkStart(mod)
}

func (m *merger) checkStart(mod *module) error {
	if mod.start == nil {
		return nil
	}
	if uint64(*mod.start) >= uint64(len(mod.functions)) {
		return invalid("start function %d of %d", *mod.start, len(mod.functions))
	}
	if t := m.typeList[m.functions[mod.functions[*mod.start]]]; t != startType {
		return invalid("the start function is of the type %s", typeText(t))
	}
	return nil
}

// startType is the type of start functions.
const startType = "\x60\x00\x00"

// readGlobals reads the globals that a module defines.
func (m *merger) readGlobals(mod *module) error {
	if mod.globalBody == nil {
		return nil
	}
	r := newReader(mod.globalBody)
	each(r, func() {
		g := global{globalType: r.globalType()}
		g.initial = m.constant(mod, r, g.value)
		mod.globals = append(mod.globals, uint32(len(m.globals)))
		m.globals = append(m.globals, g)
	})
	return r.end(sectionName(format.SectionGlobal))
}

// space is one of the index spaces of a module.
func (mod *module) space(kind byte) []uint32 {
	return [...][]uint32{mod.functions, mod.tables, mod.memories, mod.globals}[kind]
}

// export reads which items the output exports.
func (m *merger) export(in Input) error {
	names := map[string]bool{}
	for _, e := range in.Exports {
		if e.Of.Instance < 0 || e.Of.Instance >= len(m.modules) {
			return &LinkError{"", ImportName{Name: e.Of.Name}, fmt.Sprintf("there is no instance %d", e.Of.Instance)}
		}
		mod := m.modules[e.Of.Instance]
		i, ok := mod.exports[e.Of.Name]
		switch {
		case !ok:
			return &LinkError{mod.name, ImportName{Name: e.Of.Name}, "there is no such export"}
		case names[e.Name]:
			return &LinkError{mod.name, ImportName{Name: e.Of.Name}, fmt.Sprintf("another is exported as %q", e.Name)}
		}
		at := mod.space(i.kind)[i.index]
		if e.Type != nil {
			if problem := m.mismatch(i.kind, at, *e.Type); problem != "" {
				return &LinkError{mod.name, ImportName{Name: e.Of.Name}, problem}
			}
		}
		names[e.Name] = true
		m.exports = append(m.exports, export{e.Name, i.kind, at})
	}
	return nil
}

// mismatch says why an item is not a function of a type, "" if it is.
func (m *merger) mismatch(kind byte, at uint32, want format.FuncType) string {
	if kind != format.KindFunction {
		return fmt.Sprintf("a function is needed, and it is a %s", format.KindName(kind))
	}
	have, need := m.typeList[m.functions[at]], string(encodeType(want))
	if have != need {
		return fmt.Sprintf("its type is %s, and %s is needed", typeText(have), typeText(need))
	}
	return ""
}
