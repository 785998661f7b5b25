package inspect

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
	"github.com/sunaba-project/sunaba/shim/wasm/wasmedge"
)

// What the host has of an import.
const (
	HostWASI      = "WASI preview 1"
	HostSockets   = "socket extension"
	HostSignature = "other signature"
	HostMissing   = "missing"
)

// start is the function that makes a module a command.
const start = "_start"

// read adds imports, exports, memories and tables, and what is wrong with them.
func (r *Report) read(sections []format.Section) {
	types, ok := format.Types(sections)
	if !ok && !r.unfit {
		r.refuse("the module is not valid: its types cannot be read")
	}
	imports, ok := format.Imports(sections)
	if !ok && !r.unfit {
		r.refuse("the module is not valid: its imports cannot be read")
	}
	r.addImports(imports)
	memories, ok := format.Memories(sections)
	if !ok {
		r.refuse("the module is not valid: its memories cannot be read")
	}
	for _, m := range memories {
		r.addMemory(m, false)
	}
	tables, _ := format.Tables(sections) // one with an initial size of its own is not understood
	for _, t := range tables {
		r.addTable(t.Element, t.Limits, false)
	}
	functions, ok := format.Functions(sections)
	if !ok {
		r.refuse("the module is not valid: its functions cannot be read")
	}
	r.Functions = len(functions)
	exports, ok := format.Exports(sections)
	if !ok {
		r.refuse("the module is not valid: its exports cannot be read")
	}
	r.addExports(exports, imports, functions, types)
}

// addImports adds what the module imports, by where from.
func (r *Report) addImports(imports []format.Import) {
	for _, i := range imports {
		g := slices.IndexFunc(r.Imports, func(g Group) bool { return g.Module == i.Module })
		if g < 0 {
			g, r.Imports = len(r.Imports), append(r.Imports, Group{Module: i.Module})
		}
		one := Import{Name: i.Name, Kind: format.KindName(i.Kind), Host: HostMissing}
		switch i.Kind {
		case format.KindFunction:
			one.Type = typeText(i.FuncType)
			one.Host = host(i)
			r.checkFunction(i, one.Host)
		case format.KindMemory:
			r.addMemory(i.Limits, true)
		case format.KindTable:
			one.Type = valueText(i.Element)
			r.addTable(i.Element, i.Limits, true)
		}
		if i.Kind != format.KindFunction && i.Kind != format.KindTag {
			r.Refused = append(r.Refused, i.NoFunction())
		}
		r.Imports[g].Imports = append(r.Imports[g].Imports, one)
	}
}

// host says what the host has for an imported function.
func host(i format.Import) string {
	found := HostMissing
	if i.Module != wasip1.ModuleName {
		return found
	}
	for _, provided := range []struct {
		host      string
		functions []wasip1.Function
	}{{HostWASI, wasip1.Functions()}, {HostSockets, wasmedge.Functions()}} {
		for _, f := range provided.functions {
			if f.Name != i.Name {
				continue
			}
			if bytes.Equal(f.ParamTypes(), i.Params) && bytes.Equal(f.ResultTypes(), i.Results) {
				return provided.host
			}
			found = HostSignature
		}
	}
	return found
}

// checkFunction refuses, in the words of the guest process, a function that the host does not have.
func (r *Report) checkFunction(i format.Import, host string) {
	text := ""
	switch {
	case host == HostSignature:
		text = fmt.Sprintf("import %q.%q has another signature than the host's function", i.Module, i.Name)
	case host == HostMissing && i.Module == wasip1.ModuleName:
		text = fmt.Sprintf("import %q.%q is missing: host module %q has no such function", i.Module, i.Name, i.Module)
	case host == HostMissing:
		text = fmt.Sprintf("import %q.%q is missing: there is no host module %q; WASI preview 1 is what is provided", i.Module, i.Name, i.Module)
	default:
		return
	}
	r.Refused = append(r.Refused, text)
}

func (r *Report) addMemory(l format.Limits, imported bool) {
	r.Memories = append(r.Memories, Memory{
		Imported: imported, Initial: l.Min, Max: most(l),
		Shared: l.Flags&format.LimitsShared != 0, Wide: l.Flags&format.LimitsWide != 0,
	})
}

func (r *Report) addTable(element byte, l format.Limits, imported bool) {
	r.Tables = append(r.Tables, Table{Imported: imported, Element: valueText(element), Initial: l.Min, Max: most(l)})
}

func most(l format.Limits) *uint64 {
	if l.Flags&format.LimitsHaveMax == 0 {
		return nil
	}
	return &l.Max
}

// addExports adds what the module exports. One that does not export _start is no command.
func (r *Report) addExports(exports []format.Export, imports []format.Import, functions []uint32, types []format.FuncType) {
	var all []format.FuncType // of every function, the imported ones first
	for _, i := range imports {
		if i.Kind == format.KindFunction {
			all = append(all, i.FuncType)
		}
	}
	for _, n := range functions {
		if uint64(n) >= uint64(len(types)) {
			break
		}
		all = append(all, types[n])
	}
	names := map[string]string{} // with their types
	for _, e := range exports {
		one := Export{Name: e.Name, Kind: format.KindName(e.Kind)}
		if e.Kind == format.KindFunction && uint64(e.Index) < uint64(len(all)) {
			one.Type = typeText(all[e.Index])
			names[e.Name] = one.Type
		}
		r.Exports = append(r.Exports, one)
	}
	switch {
	case strings.HasPrefix(names[start], "()") || r.unfit:
	case names[start] != "":
		r.refuse("its function %s has parameters, so it is not a command", start)
	case names["_initialize"] != "":
		r.refuse("it exports no function %s but _initialize: it is a library (a reactor), and commands are accepted", start)
	default:
		r.refuse("it exports no function %s, so it is not a command", start)
	}
}

// typeText is a type of functions, "(i32 i64) -> i32".
func typeText(t format.FuncType) string {
	list := func(types []byte) string {
		texts := make([]string, len(types))
		for i := range types {
			texts[i] = valueText(types[i])
		}
		return strings.Join(texts, " ")
	}
	text := "(" + list(t.Params) + ")"
	if len(t.Results) > 0 {
		text += " -> " + list(t.Results)
	}
	return text
}

func valueText(t byte) string {
	names := map[byte]string{0x7f: "i32", 0x7e: "i64", 0x7d: "f32", 0x7c: "f64", 0x7b: "v128", 0x70: "funcref", 0x6f: "externref"}
	if name := names[t]; name != "" {
		return name
	}
	return fmt.Sprintf("type 0x%02x", t)
}
