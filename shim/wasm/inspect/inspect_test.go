package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip1"
)

// text encodes a name.
func text(s string) []byte { return append([]byte{byte(len(s))}, s...) }

func custom(name string, content ...byte) format.Section {
	return format.NewSection(format.SectionCustom, append(text(name), content...))
}

// Parts of modules: the types () and (i32 i32) -> i32, one function of the first, exported as
// _start, that ends.
var (
	types     = format.NewSection(format.SectionType, []byte{2, 0x60, 0, 0, 0x60, 2, 0x7f, 0x7f, 1, 0x7f})
	functions = format.NewSection(format.SectionFunction, []byte{1, 0})
	memory    = format.NewSection(format.SectionMemory, []byte{1, 1, 2, 9})
	code      = format.NewSection(format.SectionCode, []byte{1, 2, 0, 0x0b})
)

// exports encodes exports of functions: a name and its number.
func exports(name string, index byte) format.Section {
	return format.NewSection(format.SectionExport, append(append([]byte{1}, text(name)...), format.KindFunction, index))
}

// imports encodes imports, each a module, a name and the bytes of the kind and type.
func imports(all ...[]byte) format.Section {
	return format.NewSection(format.SectionImport, slices.Concat(append([][]byte{{byte(len(all))}}, all...)...))
}

func imported(module, name string, rest ...byte) []byte {
	return slices.Concat(text(module), text(name), rest)
}

func TestRefusals(t *testing.T) {
	const wasi = wasip1.ModuleName
	command := []format.Section{types, functions, memory, exports(start, 0), code}
	with := func(first format.Section, rest ...format.Section) []byte { // in the place of imports
		return format.Join(slices.Concat([]format.Section{types, first}, rest))
	}
	for _, c := range []struct {
		name   string
		module []byte
		kind   string
		want   []string // what the refusals contain; empty = none
	}{
		{"command", format.Join(command), KindModule, nil},
		{"component", hello(t), KindComponent, nil},
		{"component of a later WASI", bytes.ReplaceAll(hello(t), []byte("wasi:cli/stdout@0.2.12"), []byte("wasi:cli/stdout@0.3.12")), KindComponent,
			[]string{`imports "get-stdout" of "wasi:cli/stdout@0.3.12", which has no such function`}},
		{"empty component", []byte("\x00asm\x0d\x00\x01\x00"), KindComponent, []string{"exports neither wasi:cli/run"}},
		{"damaged component", []byte("\x00asm\x0d\x00\x01\x00and so on"), KindComponent, []string{"component is not valid at byte"}},
		{"text", []byte("#!/bin/sh\nexit\n"), KindOther, []string{"not a WebAssembly module"}},
		{"nothing", nil, KindOther, []string{"not a WebAssembly module"}},
		{"version", []byte("\x00asm\x02\x00\x00\x00"), KindModule, []string{"version"}},
		{"cut", format.Join(command)[:len(format.Join(command))-1], KindModule, []string{"not valid"}},
		{"has it", with(imports(imported(wasi, "args_get", format.KindFunction, 1)), functions, exports(start, 1), code), KindModule, nil},
		{"other signature", with(imports(imported(wasi, "args_get", format.KindFunction, 0)), functions, exports(start, 1), code), KindModule,
			[]string{`import "` + wasi + `"."args_get" has another signature`}},
		{"no function of that name", with(imports(imported(wasi, "fly", format.KindFunction, 0)), functions, exports(start, 1), code), KindModule,
			[]string{`"fly" is missing: host module "` + wasi + `" has no such function`}},
		{"no host", with(imports(imported("env", "a", format.KindFunction, 0), imported("env", "b", format.KindFunction, 0)), functions, exports(start, 2), code), KindModule,
			[]string{`"env"."a" is missing: there is no host module "env"`, `"env"."b" is missing`}},
		{"imported memory", with(imports(imported("env", "memory", format.KindMemory, 0, 1)), functions, exports(start, 0), code), KindModule,
			[]string{`"env"."memory" is missing: the host has functions, and no memory`}},
		{"two memories", with(format.NewSection(format.SectionFunction, []byte{1, 0}),
			format.NewSection(format.SectionMemory, []byte{2, 0, 1, 0, 1}), exports(start, 0), code), KindModule, []string{"several memories"}},
		{"threads", with(functions, format.NewSection(format.SectionMemory, []byte{1, 3, 1, 1}), exports(start, 0), code), KindModule, []string{"threads"}},
		{"memory64", with(functions, format.NewSection(format.SectionMemory, []byte{1, 4, 1}), exports(start, 0), code), KindModule, []string{"64-bit"}},
		{"exceptions", with(functions, format.NewSection(format.SectionTag, []byte{1, 0, 0}), exports(start, 0), code), KindModule, []string{"exception handling"}},
		{"imported exceptions", with(imports(imported("env", "tag", format.KindTag, 0, 0)), functions, exports(start, 0), code), KindModule, []string{"exception handling"}},
		{"garbage collection", format.Join([]format.Section{format.NewSection(format.SectionType, []byte{1, 0x5f, 0}), exports(start, 0)}), KindModule,
			[]string{"garbage collection"}},
		{"start with parameters", with(format.NewSection(format.SectionFunction, []byte{1, 1}), exports(start, 0), code), KindModule, []string{"_start has parameters"}},
		{"library", with(functions, exports("_initialize", 0), code), KindModule, []string{"reactor"}},
		{"no command", with(functions, code), KindModule, []string{"exports no function _start"}},
		{"start is a memory", with(functions, memory, format.NewSection(format.SectionExport, append(append([]byte{1}, text(start)...), format.KindMemory, 0)), code),
			KindModule, []string{"exports no function _start"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Module(c.module)
			ok := r.Kind == c.kind && len(r.Refused) == len(c.want)
			for i := 0; ok && i < len(c.want); i++ {
				ok = strings.Contains(r.Refused[i], c.want[i])
			}
			if !ok {
				t.Errorf("%s, refused %q; want %s, %q", r.Kind, r.Refused, c.kind, c.want)
			}
		})
	}
}

func TestWhatAModuleHas(t *testing.T) {
	const wasi = wasip1.ModuleName
	producers := slices.Concat([]byte{2}, text("language"), []byte{1}, text("Go"), text("go1.26"), text("processed-by"), []byte{1}, text("cmd/compile"), text(""))
	names := slices.Concat([]byte{1, 7, 1, 1}, text("main\n")[:5])
	module := format.Join([]format.Section{
		format.NewSection(format.SectionType, []byte{3, 0x60, 0, 0, 0x60, 2, 0x7f, 0x7f, 1, 0x7f, 0x60, 3, 0x7f, 0x7f, 0x7f, 1, 0x7f}),
		imports(imported(wasi, "args_get", format.KindFunction, 1), imported(wasi, "sock_open", format.KindFunction, 2), imported("env", "x", format.KindFunction, 0)),
		functions,
		format.NewSection(format.SectionTable, []byte{1, 0x70, 0, 7}),
		memory, exports(start, 3), code,
		format.NewSection(format.SectionData, []byte{1, 0, 0x41, 0, 0x0b, 2, 'h', 'i'}),
		custom("name", names...), custom(".debug_info", 1, 2, 3), custom("producers", producers...),
		custom("target_features", slices.Concat([]byte{2, '+'}, text("simd128"), []byte{'-'}, text("atomics"))...),
	})
	r := Module(module)
	nine := uint64(9)
	want := Report{
		Kind: KindModule, Digest: r.Digest, Size: int64(len(module)), Functions: 1,
		Imports: []Group{
			{wasi, []Import{{"args_get", "function", "(i32 i32) -> i32", HostWASI}, {"sock_open", "function", "(i32 i32 i32) -> i32", HostSockets}}},
			{"env", []Import{{"x", "function", "()", HostMissing}}},
		},
		Exports:  []Export{{start, "function", "()"}},
		Memories: []Memory{{Initial: 2, Max: &nine}},
		Tables:   []Table{{Element: "funcref", Initial: 7}},
		Sections: r.Sections, Refused: r.Refused,
		Toolchain: []string{"Go go1.26", "cmd/compile"},
		Producers: map[string][]string{"language": {"Go go1.26"}, "processed-by": {"cmd/compile"}},
		Features:  []string{"+simd128", "-atomics"},
		Light: Light{
			Image: Step{NotTaken, "the data takes less than 128 KiB"}, Bare: Step{State: Unknown}, Share: Step{State: Unknown},
		},
		obstacles: r.obstacles,
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
	s := r.Sections
	if s.Code != int64(len(code.Raw)) || s.Names == 0 || s.DWARF == 0 || s.Data == 0 || s.Code+s.Data+s.Names+s.DWARF+s.Other != r.Size {
		t.Errorf("sizes %+v of %d", s, r.Size)
	}
}

// What is not well-formed must neither panic nor take long, wherever it is cut or changed.
func TestDamagedModules(t *testing.T) {
	module := format.Join([]format.Section{types, imports(imported("env", "x", format.KindFunction, 0)), functions, memory, exports(start, 1), code,
		custom("producers", 1, 1, 'a', 1, 1, 'b', 0), custom("target_features", 1, '+', 1, 'x'), custom("name", 1, 4, 1, 0, 1, 'f')})
	for i := range module {
		Module(module[:i])
		for _, with := range []byte{0, 0x7f, 0xff} {
			changed := slices.Clone(module)
			changed[i] = with
			Module(changed)
		}
	}
}

func TestCompiled(t *testing.T) {
	command := format.Join([]format.Section{types, functions, memory, exports(start, 0), code})
	for _, c := range []struct {
		name    string
		module  []byte
		entry   compile.Entry
		err     error
		refused string // "" = it is not
		light   Light
		fails   bool
	}{
		{"all steps", command, compile.Entry{Load: compile.Load{ImageSize: 1, Bare: true, CodeSize: 1}}, nil, "",
			Light{Step{State: Taken}, Step{State: Taken}, Step{State: Taken}}, false},
		{"small", command, compile.Entry{Load: compile.Load{Bare: true}}, nil, "",
			Light{notTaken("there is no data"), Step{State: Taken}, notTaken("the machine code takes less than 128 KiB")}, false},
		{"interpreted", command, compile.Entry{}, nil, "",
			Light{notTaken("there is no data"), notTaken("the engine has no machine code for it here"), notTaken(needsBare)}, false},
		{"does not validate", command, compile.Entry{}, fmt.Errorf("module is not valid: so: %w", errdefs.ErrInvalidArgument), "module is not valid: so", Light{}, false},
		{"too much", command, compile.Entry{}, fmt.Errorf("more memory: %w", errdefs.ErrResourceExhausted), "more memory", Light{}, false},
		{"said already", []byte("text"), compile.Entry{}, fmt.Errorf("other: %w", errdefs.ErrInvalidArgument), "not a WebAssembly module", Light{}, false},
		{"no disk", command, compile.Entry{}, errors.New("no space left"), "", Light{}, true},
		{"unforeseen", []byte("text"), compile.Entry{}, nil, "not a WebAssembly module", Light{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Module(c.module)
			before := r.Light
			err := r.Compiled(c.entry, c.err)
			if (err != nil) != c.fails {
				t.Errorf("error %v", err)
			}
			if c.refused == "" && len(r.Refused) != 0 || c.refused != "" && (len(r.Refused) != 1 || !strings.Contains(r.Refused[0], c.refused)) {
				t.Errorf("refused %q, want %q", r.Refused, c.refused)
			}
			if c.fails || c.refused != "" {
				c.light = before
			}
			if c.refused != "" && !c.fails {
				c.light = Light{}
			}
			if r.Light != c.light {
				t.Errorf("light %+v, want %+v", r.Light, c.light)
			}
		})
	}
}

func TestGuesses(t *testing.T) {
	named := func(name string) format.Section {
		return custom("name", slices.Concat([]byte{1, byte(len(name) + 3), 1, 0}, text(name))...)
	}
	for _, c := range []struct {
		sections []format.Section
		want     []string
	}{
		{nil, []string{}},
		{[]format.Section{named("runtime.goexit")}, []string{"Go (by its names)"}},
		{[]format.Section{named("rust_begin_unwind")}, []string{"Rust (by its names)"}},
		{[]format.Section{named("__wasm_call_ctors")}, []string{"LLVM (by its names)"}},
		{[]format.Section{custom("go.buildid", []byte("\xff Go build ID: \"a/b/c/d\"\n \xff")...), named("runtime.goexit")}, []string{"Go (build id d)"}},
	} {
		r := Module(format.Join(slices.Concat([]format.Section{types, functions, exports(start, 0), code}, c.sections)))
		if !slices.Equal(r.Toolchain, c.want) {
			t.Errorf("got %q, want %q", r.Toolchain, c.want)
		}
	}
}

func hello(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile("../component/testdata/hello.wasm")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What a component of a common toolchain has, as wasm-tools tells it.
func TestWhatAComponentHas(t *testing.T) {
	file := hello(t)
	r := Module(file)
	c := r.Component
	if c == nil || c.World != "wasi:cli/command@0.2.12" || c.Components != 1 || len(c.Modules) != 4 || len(c.Imports) != 8 || len(c.Exports) != 1 || len(c.Async) != 0 {
		t.Fatalf("got %+v", c)
	}
	if want := (Interface{Name: "wasi:io/streams@0.2.12", Kind: "instance", Functions: 4, Resources: 2, WASI: "0.2"}); c.Imports[1] != want {
		t.Errorf("import %+v, want %+v", c.Imports[1], want)
	}
	if r.Light.Image.State != NotTaken || r.Light.Bare.State != Unknown || len(r.Refused) > 0 {
		t.Errorf("steps %+v, refused %q", r.Light, r.Refused)
	}
	if want := (Interface{Name: "wasi:cli/run@0.2.12", Kind: "instance", Functions: 1, WASI: "0.2"}); c.Exports[0] != want {
		t.Errorf("export %+v, want %+v", c.Exports[0], want)
	}
	if m := c.Modules[0]; m.Name != "main" || m.Size != 202 || m.Functions != 1 || m.Imports != 1 || m.Exports != 2 || m.Instances != 1 {
		t.Errorf("module %+v", m)
	}
	if len(r.Memories) != 1 || r.Memories[0].Initial != 2 || !slices.Contains(r.Toolchain, "wit-component 0.262.0") {
		t.Errorf("memories %+v, toolchain %q", r.Memories, r.Toolchain)
	}
	s := r.Sections
	if s.Code == 0 || s.Data == 0 || s.Names == 0 || s.Code+s.Data+s.Names+s.DWARF+s.Other != r.Size {
		t.Errorf("sizes %+v of %d", s, r.Size)
	}
	for i := range file {
		if i < 2000 || i%50 == 0 {
			Module(file[:i])
		}
	}
}
