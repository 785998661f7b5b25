package wasip1

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Instantiate defines the module wasi_snapshot_preview1 in r: the 46 functions of the specification
// and those of extensions. Where a name has several forms, the guest gets the first.
func (h *Host) Instantiate(ctx context.Context, r wazero.Runtime, extensions ...Function) error {
	return define(ctx, r, h, choose(append(Functions(), extensions...), nil))
}

// InstantiateFor is Instantiate for one guest with these imports
// (wazero.CompiledModule.ImportedFunctions, of which Import and ParamTypes are used). It defines
// the functions that they name, each of which costs a start, and no others. Where a name has
// several forms, the guest gets the one it was built for.
func (h *Host) InstantiateFor(ctx context.Context, r wazero.Runtime, imports []api.FunctionDefinition, extensions ...Function) error {
	wanted := wantedParams(imports)
	return define(ctx, r, h, slices.DeleteFunc(choose(append(Functions(), extensions...), wanted), func(f Function) bool {
		_, named := wanted[f.Name]
		return !named
	}))
}

// wantedParams are the parameters of the functions that a guest imports, by name.
func wantedParams(imports []api.FunctionDefinition) map[string]string {
	wanted := make(map[string]string, len(imports))
	for _, f := range imports {
		module, name, ok := f.Import()
		if !ok || module != ModuleName {
			continue
		}
		params := make([]byte, len(f.ParamTypes()))
		for i, p := range f.ParamTypes() {
			switch p {
			case api.ValueTypeI32:
				params[i] = 'i'
			case api.ValueTypeI64:
				params[i] = 'I'
			}
		}
		wanted[name] = string(params)
	}
	return wanted
}

// choose picks one function for each name: the one with the parameters that are wanted, else the
// first.
func choose(functions []Function, wanted map[string]string) []Function {
	index := map[string]int{}
	var chosen []Function
	for _, f := range functions {
		i, seen := index[f.Name]
		switch {
		case !seen:
			index[f.Name] = len(chosen)
			chosen = append(chosen, f)
		case wanted[f.Name] == f.Params:
			chosen[i] = f
		}
	}
	return chosen
}

// define makes the module of these functions.
func define(ctx context.Context, r wazero.Runtime, h *Host, functions []Function) error {
	builder := r.NewHostModuleBuilder(ModuleName)
	for _, f := range functions {
		builder = builder.NewFunctionBuilder().
			WithGoModuleFunction(f.bind(h), f.ParamTypes(), f.ResultTypes()).Export(f.Name)
	}
	if _, err := builder.Instantiate(ctx); err != nil {
		return fmt.Errorf("define module %q: %w", ModuleName, err)
	}
	return nil
}

// errNoMemory is the trap of a module that calls without a memory for parameters and results.
var errNoMemory = errors.New("the module has no memory, which functions of WASI need")

// bind makes a function of the engine's for a guest.
func (f Function) bind(h *Host) api.GoModuleFunc {
	switch f.Name {
	case procExit:
		return func(ctx context.Context, mod api.Module, stack []uint64) {
			exit(ctx, mod, uint32(stack[0]))
		}
	case procRaise:
		return func(ctx context.Context, mod api.Module, stack []uint64) {
			stack[0] = uint64(ErrnoOf(raise(ctx, mod, uint32(stack[0]))))
		}
	}
	call := f.Call
	return func(_ context.Context, mod api.Module, stack []uint64) {
		mem := mod.Memory()
		if reflect.ValueOf(mem).IsNil() { // wazero's interface is not nil where there is none
			panic(errNoMemory)
		}
		stack[0] = uint64(ErrnoOf(call(h, mem, stack)))
	}
}
