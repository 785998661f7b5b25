package merge

import (
	"fmt"
	"sort"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

// trampoline is a function that passes its parameters on to a function in a table, at a constant
// place: local.get 0, local.get 1, …, i32.const slot, call_indirect. wit-component makes a module
// of them (its shim), so that instances can be given functions of instances that come later; the
// last of all (its fixup) fills the table.
type trampoline struct {
	function, table, slot uint32
}

// alias is the function that a function of the output does nothing but call, or itself.
func (m *merger) alias(function uint32) uint32 {
	if to, ok := m.aliases[function]; ok {
		return to
	}
	return function
}

// resolveTrampolines finds which functions can be called instead of trampolines: those that active
// segments put into a table that nothing else changes, of the type that is called for.
func (m *merger) resolveTrampolines(Input) error {
	var all []trampoline
	frozen := map[uint32]map[uint32]uint32{} // of each table, what it holds
	for _, mod := range m.modules {
		for n, body := range mod.bodies {
			if t, ok := mod.readTrampoline(m, n, body); ok {
				all = append(all, t)
				frozen[t.table] = map[uint32]uint32{}
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	if err := m.thaw(frozen); err != nil {
		return err
	}
	if err := m.thawLate(frozen); err != nil {
		return err
	}
	for _, e := range m.elements {
		if items := frozen[e.table]; (e.mode == active || e.mode == late) && items != nil {
			for n, i := range e.items {
				items[e.offset+uint32(n)] = i
			}
		}
	}
	next := map[uint32]uint32{}
	for _, t := range all {
		to, ok := frozen[t.table][t.slot]
		if ok && to != nullItem && m.functions[to] == m.functions[t.function] {
			next[t.function] = to
		}
	}
	m.aliases = follow(next)
	return nil
}

// readTrampoline reads a function of a module as a trampoline.
func (mod *module) readTrampoline(m *merger, n int, body []byte) (t trampoline, ok bool) {
	if len(body) < 2 || body[0] != 0 || body[1] != opLocalGet && body[1] != opI32Const {
		return t, false
	}
	r := format.Reader{Rest: body[1:]}
	signature := format.Reader{Rest: []byte(m.typeList[mod.defined[n]])[1:]}
	for param := range signature.Number() {
		if r.Octet() != opLocalGet || r.Number() != param {
			return t, false
		}
	}
	if r.Octet() != opI32Const {
		return t, false
	}
	slot := uint32(r.Signed())
	if r.Octet() != opCallIndirect {
		return t, false
	}
	called, table := r.Number(), r.Number()
	if r.Octet() != opEnd || r.Bad || len(r.Rest) > 0 || uint64(called) >= uint64(len(mod.types)) || uint64(table) >= uint64(len(mod.tables)) {
		return t, false
	}
	return trampoline{mod.functionsAt + uint32(n), mod.tables[table], slot}, mod.types[called] == mod.defined[n]
}

// thaw removes the tables that something but active segments changes, or may change: an
// instruction or the host. The bodies of modules that have such a table are read.
func (m *merger) thaw(frozen map[uint32]map[uint32]uint32) error {
	for _, e := range m.exports {
		if e.kind == format.KindTable {
			delete(frozen, e.index)
		}
	}
	for _, e := range m.elements {
		end := uint64(e.offset) + uint64(len(e.items))
		if (e.mode == active || e.mode == late) && end > m.tables[e.table].limits.Min {
			delete(frozen, e.table)
		}
	}
	for _, mod := range m.modules {
		has := false
		for _, t := range mod.tables {
			has = has || frozen[t] != nil
		}
		if !has {
			continue
		}
		w := newScanner(m, mod)
		for n := range mod.bodies {
			if err := w.function(n); err != nil {
				return err
			}
		}
		for t := range w.changed {
			delete(frozen, t)
		}
	}
	return nil
}

// thawLate removes the tables that late segments fill, if a start function that runs before could
// see that they are not filled yet. A start function that only computes and grows memory cannot:
// wit-component makes such ones for the stack of its adapter.
func (m *merger) thawLate(frozen map[uint32]map[uint32]uint32) error {
	before := 0 // the steps that are looked at
	for n, s := range m.starts {
		if s.element >= 0 && frozen[m.elements[s.element].table] != nil {
			before = n
		}
	}
	var roots []uint32
	for _, s := range m.starts[:before] {
		if s.element < 0 && s.data < 0 {
			roots = append(roots, s.function)
		}
	}
	simple, err := m.callsNoTable(roots)
	if simple || err != nil {
		return err
	}
	for _, e := range m.elements {
		if e.mode == late {
			delete(frozen, e.table)
		}
	}
	return nil
}

// callsNoTable says whether functions, and those that they call, call none in a table and none of
// the host.
func (m *merger) callsNoTable(functions []uint32) (bool, error) {
	scanners := map[*module]*scanner{}
	seen := map[uint32]bool{}
	for len(functions) > 0 {
		f := functions[len(functions)-1]
		functions = functions[:len(functions)-1]
		if seen[f] {
			continue
		}
		seen[f] = true
		mod := m.definer(f)
		if mod == nil {
			return false, nil
		}
		w := scanners[mod]
		if w == nil {
			w = newScanner(m, mod)
			scanners[mod] = w
		}
		w.calls = w.calls[:0]
		if err := w.function(int(f - mod.functionsAt)); err != nil {
			return false, err
		}
		if w.indirect {
			return false, nil
		}
		functions = append(functions, w.calls...)
	}
	return true, nil
}

// definer returns the module that defines a function, nil for one of the host and a trap.
func (m *merger) definer(function uint32) *module {
	n := sort.Search(len(m.modules), func(n int) bool {
		mod := m.modules[n]
		return function < mod.functionsAt+uint32(len(mod.defined))
	})
	if n == len(m.modules) || function < m.modules[n].functionsAt {
		return nil
	}
	return m.modules[n]
}

// scanner reads bodies of a module for what they change and call. What a rewriter writes is not
// used.
type scanner struct{ rewriter }

func newScanner(m *merger, mod *module) *scanner {
	return &scanner{rewriter{m: m, mod: mod, changed: map[uint32]bool{}, declared: map[uint32]bool{}, scans: true}}
}

// function reads a function that the module defines.
func (w *scanner) function(n int) error {
	w.out = w.out[:0]
	if err := w.body(w.mod.bodies[n]); err != nil {
		return fmt.Errorf("instance %q: function %d: %w", w.mod.name, len(w.mod.functions)-len(w.mod.bodies)+n, err)
	}
	return nil
}

// follow returns where chains of functions end. Those that end nowhere are left out: such functions
// call each other until the stack is exhausted.
func follow(next map[uint32]uint32) map[uint32]uint32 {
	ends := map[uint32]uint32{}
	for f := range next {
		var chain []uint32
		seen := map[uint32]bool{}
		to := f
		for !seen[to] {
			if end, ok := ends[to]; ok {
				to = end
				break
			}
			after, ok := next[to]
			if !ok {
				break
			}
			seen[to] = true
			chain = append(chain, to)
			to = after
		}
		for _, c := range chain {
			if seen[to] {
				to = c // a cycle: each is its own end
			}
			ends[c] = to
		}
	}
	return ends
}
