package lower

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/tetratelabs/wazero"

	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// hello is a component of a common toolchain, with the adapter for preview 1: four core modules.
func hello(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("../testdata/hello.wasm")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestLowered is a valid module with one memory, that exports _start and allocators, and imports
// nothing but functions that are provided, with their signatures.
func TestLowered(t *testing.T) {
	lowered, err := Lower(hello(t))
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
		i := wasip2.ParseImport(module, name)
		signature, err := wasip2.Lookup(i.Interface, i.Function)
		if err != nil {
			t.Error(err)
			continue
		}
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

// TestDamaged: whatever is in a file, the answer is a module or an error of its class.
func TestDamaged(t *testing.T) {
	whole := hello(t)
	for at := 8; at < len(whole); at += 7 {
		changed := slices.Clone(whole)
		changed[at] ^= byte(1 + at%255)
		for _, file := range [][]byte{whole[:at], changed} {
			if _, err := Lower(file); err != nil && !errdefs.IsInvalidArgument(err) && !errdefs.IsResourceExhausted(err) {
				t.Fatalf("byte %d: %v", at, err)
			}
		}
	}
}

// TestRefused names what does not run.
func TestRefused(t *testing.T) {
	replaced := func(old, by string) []byte {
		return []byte(strings.ReplaceAll(string(hello(t)), old, by))
	}
	for want, file := range map[string][]byte{
		"which is not of WASI":         replaced("wasi:clocks/wall-clock@", "acme:clocks/wall-clock@"),
		"exports neither wasi:cli/run": replaced("wasi:cli/run@0.2", "wasi:cli/fly@0.2"),
	} {
		if _, err := Lower(file); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func FuzzLower(f *testing.F) {
	f.Add(hello(f))
	f.Fuzz(func(t *testing.T, file []byte) {
		if _, err := Lower(file); err != nil && !errdefs.IsInvalidArgument(err) && !errdefs.IsResourceExhausted(err) {
			t.Error(err)
		}
	})
}

// BenchmarkLower is for a component of 18 kB.
func BenchmarkLower(b *testing.B) {
	file := hello(b)
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if _, err := Lower(file); err != nil {
			b.Fatal(err)
		}
	}
}
