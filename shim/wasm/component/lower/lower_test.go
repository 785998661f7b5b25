package lower

import (
	"bytes"
	"context"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// read reads a component. Those of testdata are their .wat by wasm-tools 1.262.0: parse, then
// strip -a.
func read(t testing.TB, path string) []byte {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

const (
	two       = "testdata/two.wasm"
	signature = "testdata/signature.wasm"
	adapted   = "../testdata/hello.wasm"
	proxy     = "../../../../tests/oci/testdata/http.wasm"
	tasks     = "../../wasip3/testdata/async.wasm"
)

// Start functions run in the order of the instances, each lowering has its own allocator, and
// post-return is called behind run.
func TestLower(t *testing.T) {
	merged, err := Lower(read(t, two))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer r.Close(ctx)
	compiled, err := r.CompileModule(ctx, merged.Module)
	if err != nil {
		t.Fatal(err)
	}
	var imports []canonical.Import
	var names []string
	for _, f := range compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		imports = append(imports, canonical.ParseImport(module, name))
		names = append(names, module+" "+name)
	}
	slices.Sort(names)
	if want := []string{
		"wasi:cli/environment@0.2.3 get-arguments#realloc0", "wasi:cli/environment@0.2.3 get-arguments#realloc1", "wasi:cli/exit@0.2.0 exit",
	}; !slices.Equal(names, want) {
		t.Errorf("imports %q", names)
	}
	host, err := wasip2.New(wasip2.Config{Args: []string{"name", "x"}, Stdin: -1, Stdout: -1, Stderr: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	instance, err := host.NewInstance()
	if err != nil {
		t.Fatal(err)
	}
	defer instance.Close()
	if err := canonical.Provide(ctx, r, imports, wasip2.World()); err != nil {
		t.Fatal(err)
	}
	ctx = canonical.With(ctx, instance.ABI())
	module, err := r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := module.ExportedFunction(startName).Call(ctx); err != nil {
		t.Fatal(err)
	}
	said, _ := module.Memory().Read(0x100, 16)
	if got := string(bytes.TrimRight(said, "\x00")); got != "abrABp" {
		t.Errorf("%q ran, want abrABp", got)
	}
}

// TestLowered is a valid module with one memory, that exports _start and allocators, and imports
// nothing but functions that are provided, with their signatures.
func TestLowered(t *testing.T) {
	lowered, err := Lower(read(t, adapted))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer r.Close(ctx)
	compiled, err := r.CompileModule(ctx, lowered.Module)
	if err != nil {
		t.Fatal(err)
	}
	exports := compiled.ExportedFunctions()
	if exports["_start"] == nil {
		t.Error("it exports no _start")
	}
	reallocs := 0
	for _, f := range compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		i := canonical.ParseImport(module, name)
		function, err := canonical.Find(i.Interface, i.Function, wasip2.World())
		if err != nil {
			t.Error(err)
			continue
		}
		signature := function.Signature()
		if !slices.Equal(signature.Params, f.ParamTypes()) || !slices.Equal(signature.Results, f.ResultTypes()) {
			t.Errorf("%s %s has another signature", module, name)
		}
		if signature.Realloc {
			reallocs++
		}
		if signature.Realloc != (i.Options.Realloc != "") || i.Options.Realloc != "" && exports[i.Options.Realloc] == nil {
			t.Errorf("%s %s has the allocator %q", module, name, i.Options.Realloc)
		}
	}
	if reallocs == 0 {
		t.Error("no function that allocates was seen")
	}
	if lowered.Direct == 0 {
		t.Error("calls go through a table that nothing changes")
	}
}

// What is refused is named. A variant differs from the component by one replacement.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ file, old, new, want string }{
		"no such function":  {two, "get-arguments", "get-argumentz", `imports "get-argumentz" of "wasi:cli/environment@0.2.3", which has no such function`},
		"no such interface": {two, "wasi:cli/environment@", "wasi:cli/environmenu@", `imports "wasi:cli/environmenu@0.2.3", which is not served: of wasi:cli the interfaces environment, exit, stderr, `},
		"time zones":        {two, "wasi:cli/environment@", "wasi:clocks/timezone@", `imports "wasi:clocks/timezone@0.2.3", which is not served: of wasi:clocks the interfaces monotonic-clock, wall-clock are`},
		"not of WASI":       {two, "wasi:cli/environment@", "spin:cli/environment@", `imports "spin:cli/environment@0.2.3", which is not of WASI`},
		"time zones of 0.3": {two, "wasi:cli/environment@0.2.3", "wasi:clocks/timezones@0.3.", "imports \"wasi:clocks/timezones@0.3.\", which is not served: of wasi:clocks the interfaces monotonic-clock, system-clock, types are"},
		"no command":        {two, "wasi:cli/run@0.2.3", "wasi:cli/ron@0.2.3", "exports neither wasi:cli/run nor"},
		"UTF-16":            {two, lowering + "\x00", lowering + "\x01", "with strings that are not UTF-8"},
		"no allocator":      {two, "\x03\x00\x04\x00", "\x03\x00\x05\x00", "without the option realloc"},
		"allocator's type":  {two, "\x60\x04\x7f\x7f\x7f\x7f\x01\x7f", "\x60\x04\x7e\x7f\x7f\x7f\x01\x7f", `export "realloc-a": its type is (i64 i32 i32 i32)`},
		"signature":         {signature, "", "", `imports "get-stdin" of "wasi:cli/stdin@0.2.3" with another signature than WASI 0.2 has`},
		"core module":       {two, "\x0d\x00\x01\x00\x07", "\x01\x00\x00\x00\x07", "it is a core module"},
		"bad core module":   {two, "\x00asm\x01\x00\x00\x00\x01", "\x00asm\x01\x00\x00\x00\x21", "is not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			file := read(t, c.file)
			changed := bytes.ReplaceAll(file, []byte(c.old), []byte(c.new))
			if c.old != "" && (bytes.Equal(file, changed) || len(file) != len(changed)) {
				t.Fatal("nothing is replaced")
			}
			_, err := Lower(changed)
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// lowering is how a lowering of function 0 with three options begins.
const lowering = "\x01\x00\x00\x03"

// Wherever it is cut or changed, a component is lowered or refused with a text.
func TestDamaged(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // the heap is small
	for _, path := range []string{two, signature, adapted, proxy, tasks} {
		file := read(t, path)
		for i := range file {
			if (path == adapted || path == proxy || path == tasks) && i%7 != 0 {
				continue
			}
			try(t, file[:i])
			for _, with := range []byte{0, 1, 0x7f, 0xff} {
				changed := slices.Clone(file)
				changed[i] = with
				try(t, changed)
			}
		}
	}
}

// try lowers a file, and returns the module, nil if it is refused.
func try(t *testing.T, file []byte) []byte {
	t.Helper()
	merged, err := Lower(file)
	if err != nil {
		if !errdefs.IsInvalidArgument(err) && !errdefs.IsResourceExhausted(err) {
			t.Errorf("%d bytes: %v", len(file), err)
		}
		return nil
	}
	return merged.Module
}

// What can be lowered and is valid is a command that imports what is served, with that signature.
func FuzzLower(f *testing.F) {
	for _, path := range []string{two, signature, adapted, proxy, tasks} {
		f.Add(read(f, path))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		module := try(t, file)
		if module == nil {
			return
		}
		ctx := context.Background()
		r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(16))
		defer r.Close(ctx)
		compiled, err := r.CompileModule(ctx, module)
		if err != nil {
			return
		}
		checkEntries(t, compiled)
		for _, f := range compiled.ImportedFunctions() {
			module, name, _ := f.Import()
			i := canonical.ParseImport(module, name)
			function, err := canonical.Find(i.Interface, i.Function, append(worlds(), async.World())...)
			if err != nil {
				t.Errorf("imports %q of %q, %v", name, module, err)
				continue
			}
			want := function.Signature()
			if i.Options.Async {
				want = function.AsyncSignature()
			}
			if !slices.Equal(want.Params, f.ParamTypes()) || !slices.Equal(want.Results, f.ResultTypes()) {
				t.Errorf("imports %q of %q with another signature", name, module)
			}
			if realloc := compiled.ExportedFunctions()[i.Options.Realloc]; want.Realloc && (realloc == nil || !slices.Equal(realloc.ParamTypes(), slices.Repeat([]api.ValueType{api.ValueTypeI32}, 4))) {
				t.Errorf("%q of %q has no allocator", name, module)
			}
		}
	})
}

// checkEntries looks for a function that guests are run by, and at its type.
func checkEntries(t *testing.T, compiled wazero.CompiledModule) {
	t.Helper()
	start, handle := compiled.ExportedFunctions()[startName], compiled.ExportedFunctions()[HandleName]
	if start == nil && handle == nil {
		t.Error("it is no command and answers no requests")
	}
	if start != nil && len(start.ParamTypes())+len(start.ResultTypes()) != 0 {
		t.Error("_start takes or returns something")
	}
	two := []api.ValueType{api.ValueTypeI32, api.ValueTypeI32}
	if handle != nil && (!slices.Equal(handle.ParamTypes(), two) || len(handle.ResultTypes()) != 0) {
		t.Error("the handler has another type")
	}
}

// A component of wasi:http/proxy exports a function that takes a request, and is no command.
func TestHandler(t *testing.T) {
	lowered, err := Lower(read(t, proxy))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer r.Close(ctx)
	compiled, err := r.CompileModule(ctx, lowered.Module)
	if err != nil {
		t.Fatal(err)
	}
	checkEntries(t, compiled)
	if exports := compiled.ExportedFunctions(); exports[HandleName] == nil || exports[startName] != nil {
		t.Errorf("exports %v", exports)
	}
}

// BenchmarkLower is for a component of 18 kB.
func BenchmarkLower(b *testing.B) {
	file := read(b, adapted)
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if _, err := Lower(file); err != nil {
			b.Fatal(err)
		}
	}
}
