package merge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
)

const features = api.CoreFeaturesV2 | experimental.CoreFeaturesTailCall | experimental.CoreFeaturesExtendedConst

// world runs modules, and writes down what can be seen of them.
type world struct {
	t       testing.TB
	ctx     context.Context
	runtime wazero.Runtime
	log     strings.Builder
}

func newWorld(t testing.TB, config wazero.RuntimeConfig) *world {
	w := &world{t: t, ctx: context.Background()}
	w.runtime = wazero.NewRuntimeWithConfig(w.ctx, config.WithCoreFeatures(features))
	t.Cleanup(func() { w.runtime.Close(w.ctx) })
	return w
}

// provideHosts makes the functions of the host. They write down what they are called with.
func (w *world) provideHosts(in Input) {
	modules := map[string]wazero.HostModuleBuilder{}
	known := map[ImportName]bool{}
	for _, i := range in.Instances {
		for _, s := range i.Imports {
			h, ok := s.(Host)
			if !ok || known[ImportName{h.Module, h.Name}] {
				continue
			}
			known[ImportName{h.Module, h.Name}] = true
			if modules[h.Module] == nil {
				modules[h.Module] = w.runtime.NewHostModuleBuilder(h.Module)
			}
			modules[h.Module].NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
				for n, p := range h.Type.Params {
					if p == typeI32 {
						stack[n] = uint64(uint32(stack[n]))
					}
				}
				fmt.Fprintf(&w.log, "%s %x\n", h.Name, stack[:len(h.Type.Params)])
				for n := range h.Type.Results {
					stack[n] = uint64(w.log.Len() % 7)
				}
			}), []api.ValueType(valueTypes(h.Type.Params)), []api.ValueType(valueTypes(h.Type.Results))).Export(h.Name)
		}
	}
	for _, b := range modules {
		if _, err := b.Instantiate(w.ctx); err != nil {
			w.t.Fatal(err)
		}
	}
}

func valueTypes(types []byte) (all []api.ValueType) {
	for _, t := range types {
		all = append(all, api.ValueType(t))
	}
	return all
}

// outcome is the first line of an error.
func outcome(err error) string {
	if err == nil {
		return "done"
	}
	for at := err; at != nil; at = errors.Unwrap(at) {
		err = at // what is wrong, without where
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// observe calls the exports of the set, and writes down what can be seen.
func (w *world) observe(in Input, find func(n int) (api.Module, string)) {
	for round := range 2 {
		for n := range in.Exports {
			mod, name := find(n)
			if f := mod.ExportedFunction(name); f != nil {
				var args []uint64
				for _, p := range f.Definition().ParamTypes() {
					args = append(args, map[api.ValueType]uint64{typeI32: 5, typeI64: 77, typeF64: api.EncodeF64(2.5)}[p]+uint64(round))
				}
				results, err := f.Call(w.ctx, args...)
				fmt.Fprintf(&w.log, "%s %s", in.Exports[n].Name, outcome(err))
				for r, t := range f.Definition().ResultTypes() {
					if t == typeI32 && err == nil {
						results[r] = uint64(uint32(results[r]))
					}
				}
				fmt.Fprintf(&w.log, " %x\n", results)
			}
			if g := mod.ExportedGlobal(name); g != nil && g.Type() != typeFuncref {
				fmt.Fprintf(&w.log, "%s = %x\n", in.Exports[n].Name, g.Get())
			}
			if m := mod.ExportedMemory(name); m != nil {
				all, _ := m.Read(0, m.Size())
				fmt.Fprintf(&w.log, "%s %d %x\n", in.Exports[n].Name, m.Size(), sha256.Sum256(all))
			}
			if fuel, ok := refuel(in, find); ok {
				fuel.Set(100)
			}
		}
	}
}

// refuel returns the global that keeps functions from running forever.
func refuel(in Input, find func(n int) (api.Module, string)) (api.MutableGlobal, bool) {
	n := slices.IndexFunc(in.Exports, func(e FinalExport) bool { return e.Name == "0.fuel" })
	if n < 0 {
		return nil, false
	}
	mod, name := find(n)
	g, ok := mod.ExportedGlobal(name).(api.MutableGlobal)
	return g, ok
}

// runMerged runs a merged module.
func runMerged(t testing.TB, in Input, module []byte, config wazero.RuntimeConfig) string {
	w := newWorld(t, config)
	w.provideHosts(in)
	mod, err := w.runtime.InstantiateWithConfig(w.ctx, module, wazero.NewModuleConfig().WithName("merged").WithStartFunctions())
	fmt.Fprintf(&w.log, "instantiated: %s\n", outcome(err))
	if err == nil {
		w.observe(in, func(n int) (api.Module, string) { return mod, in.Exports[n].Name })
	}
	return w.log.String()
}

// runApart runs the modules one after the other, linked by the engine.
func runApart(t testing.TB, in Input, config wazero.RuntimeConfig) string {
	w := newWorld(t, config)
	w.provideHosts(in)
	var all []api.Module
	for n, i := range in.Instances {
		mod, err := w.runtime.InstantiateWithConfig(w.ctx, w.relink(n, i), wazero.NewModuleConfig().WithName(fmt.Sprint(n)).WithStartFunctions())
		if err != nil {
			fmt.Fprintf(&w.log, "instantiated: %s\n", outcome(err))
			return w.log.String()
		}
		all = append(all, mod)
	}
	fmt.Fprintf(&w.log, "instantiated: done\n")
	w.observe(in, func(n int) (api.Module, string) { return all[in.Exports[n].Of.Instance], in.Exports[n].Of.Name })
	return w.log.String()
}

// relink returns a module with its imports named after what they are bound to.
func (w *world) relink(n int, i Instance) []byte {
	sections, err := format.Split(i.Module)
	if err != nil {
		w.t.Fatal(err)
	}
	at := slices.IndexFunc(sections, func(s format.Section) bool { return s.ID == format.SectionImport })
	if at < 0 {
		return i.Module
	}
	types, _ := format.Types(sections)
	r := format.Reader{Rest: sections[at].Body}
	count := r.Number()
	out := appendIndex(nil, count)
	for k := range count {
		name := ImportName{string(r.Bytes()), string(r.Bytes())}
		before := r.Rest
		var function format.FuncType
		switch kind := r.Octet(); kind {
		case format.KindFunction:
			function = types[r.Number()]
		case format.KindTable:
			r.Octet()
			r.Limits()
		case format.KindMemory:
			r.Limits()
		default:
			r.Octet()
			r.Octet()
		}
		what := before[:len(before)-len(r.Rest)]
		switch s := i.Imports[name].(type) {
		case Export:
			out = appendText(appendText(out, fmt.Sprint(s.Instance)), s.Name)
		case Host:
			out = appendText(appendText(out, s.Module), s.Name)
		case Trap:
			out = appendText(appendText(out, w.provide(n, k, trapModule(function))), "it")
		case Constant:
			out = appendText(appendText(out, w.provide(n, k, constantModule(what[1], s.Bits))), "it")
		}
		out = append(out, what...)
	}
	sections[at] = format.NewSection(format.SectionImport, out)
	return format.Join(sections)
}

// provide instantiates a module that stands for a source, and returns its name.
func (w *world) provide(instance int, n uint32, module []byte) string {
	name := fmt.Sprintf("source %d %d", instance, n)
	if _, err := w.runtime.InstantiateWithConfig(w.ctx, module, wazero.NewModuleConfig().WithName(name)); err != nil {
		w.t.Fatal(err)
	}
	return name
}

func trapModule(t format.FuncType) []byte {
	return format.Join([]format.Section{
		format.NewSection(format.SectionType, append([]byte{1}, encodeType(t)...)), format.NewSection(format.SectionFunction, []byte{1, 0}),
		format.NewSection(format.SectionExport, []byte("\x01\x02it\x00\x00")), format.NewSection(format.SectionCode, []byte{1, 3, 0, opUnreachable, opEnd}),
	})
}

func constantModule(value byte, bits uint64) []byte {
	initial := constant{value: value, low: bits}.appendTo([]byte{1, value, 0}, nil)
	return format.Join([]format.Section{
		format.NewSection(format.SectionGlobal, append(initial, opEnd)), format.NewSection(format.SectionExport, []byte("\x01\x02it\x03\x00")),
	})
}

// difference returns the first lines that differ, with some that come before.
func difference(merged, apart string) string {
	m, a := strings.Split(merged, "\n"), strings.Split(apart, "\n")
	for n := range min(len(m), len(a)) {
		if m[n] != a[n] {
			return fmt.Sprintf("line %d: merged %s, apart %s, after\n%s", n, m[n], a[n], strings.Join(a[max(0, n-5):n], "\n"))
		}
	}
	return fmt.Sprintf("merged %d lines, apart %d", len(m), len(a))
}

// compare runs a set apart and merged, and says whether it could be instantiated.
func compare(t testing.TB, in Input) (r *Result, ran bool) {
	t.Helper()
	r, err := Merge(in)
	if err != nil {
		t.Fatal(err)
	}
	want := runApart(t, in, wazero.NewRuntimeConfigInterpreter())
	for name, config := range map[string]wazero.RuntimeConfig{"interpreted": wazero.NewRuntimeConfigInterpreter(), "compiled": wazero.NewRuntimeConfig()} {
		if got := runMerged(t, in, r.Module, config); got != want {
			t.Fatalf("%s: %s", name, difference(got, want))
		}
	}
	return r, strings.Contains(want, "instantiated: done")
}

// A set of modules does the same merged and apart: same results, traps, calls of the host and
// their order, memory and globals.
func TestMergedDoesTheSame(t *testing.T) {
	ran, direct := 0, 0
	const sets = 300
	for seed := range uint64(sets) {
		in := generate(seed)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r, ok := compare(t, in)
			if ok {
				ran++
				if r.Direct > 0 {
					direct++
				}
			}
			if again, err := Merge(in); err != nil || !bytes.Equal(again.Module, r.Module) {
				t.Errorf("merged twice, it is not the same: %v", err)
			}
		})
	}
	t.Logf("of %d sets %d run, %d with direct calls", sets, ran, direct)
	if ran < sets/2 || direct < sets/10 {
		t.Errorf("of %d sets %d run, %d with direct calls: the generator has become too timid", sets, ran, direct)
	}
}
