package guest

import (
	"slices"

	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// imported is a function that the module imports. Only what it does not define itself is imported.
type imported struct {
	api.FunctionDefinition
	from format.Import
}

func (f imported) Import() (module, name string, isImport bool) {
	return f.from.Module, f.from.Name, true
}
func (f imported) ParamTypes() []api.ValueType  { return f.from.Params }
func (f imported) ResultTypes() []api.ValueType { return f.from.Results }

// imports lists the functions that the compiled module imports. wazero's own list describes every
// function of the module first, which for a large one takes long and much memory: it is the second
// choice. An import that is no function is refused by its name.
func (g *guest) imports(module []byte) ([]api.FunctionDefinition, error) {
	sections, err := format.Split(module)
	if err != nil {
		return g.compiled.ImportedFunctions(), nil
	}
	read, ok := format.Imports(sections)
	if !ok {
		return g.compiled.ImportedFunctions(), nil
	}
	all := make([]api.FunctionDefinition, 0, len(read))
	for _, i := range read {
		if i.Kind != format.KindFunction {
			return nil, faultf(link.Invalid, "%s", i.NoFunction())
		}
		all = append(all, imported{from: i})
	}
	return all, nil
}

// checkImports names the first import that no host module provides.
func (g *guest) checkImports(imports []api.FunctionDefinition) error {
	provided := map[string]map[string]api.FunctionDefinition{}
	for _, f := range imports {
		module, name, _ := f.Import()
		have, known := provided[module]
		if !known {
			if host := g.runtime.Module(module); host != nil {
				have = host.ExportedFunctionDefinitions() // made anew on every call
			}
			provided[module] = have
		}
		d := have[name]
		switch {
		case have == nil:
			return faultf(link.Invalid, "import %q.%q is missing: there is no host module %q; WASI preview 1 is what is provided, and WASI 0.2 and 0.3 for components", module, name, module)
		case d == nil:
			return faultf(link.Invalid, "import %q.%q is missing: host module %q has no such function", module, name, module)
		case !slices.Equal(d.ParamTypes(), f.ParamTypes()) || !slices.Equal(d.ResultTypes(), f.ResultTypes()):
			return faultf(link.Invalid, "import %q.%q has another signature than the host's function", module, name)
		}
	}
	return nil
}
