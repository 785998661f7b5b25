// Package lower makes one core module of a component of WASI 0.2 that is a command or answers HTTP
// requests, so that it is compiled, cached and started as any other module is: it exports _start or
// HandleName, or both, and imports the functions of packages wasip2 and wasihttp by the names that
// canonical.ImportName gives them.
package lower

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/component"
	"github.com/sunaba-project/sunaba/shim/wasm/component/merge"
	"github.com/sunaba-project/sunaba/shim/wasm/format"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// Lower makes the module. It takes time in proportion to the file. The module has to be validated
// before it runs, as any other.
//
// # Errors
//
// ErrInvalidArgument, with what is not well-formed or not supported.
func Lower(file []byte) (*merge.Result, error) {
	c, err := component.Decode(file)
	if err != nil {
		return nil, fmt.Errorf("decode component: %w", err)
	}
	return Decoded(c)
}

// Decoded is Lower for a component that is decoded.
func Decoded(c *component.Component) (*merge.Result, error) {
	plan, err := c.Plan()
	if err != nil {
		return nil, err
	}
	if err := checkServed(c, plan); err != nil {
		return nil, err
	}
	l := lowerer{reallocs: map[component.CoreExportRef]string{}}
	names := c.ModuleNames()
	numbers := map[*component.Module]int{}
	for n, m := range c.Modules {
		numbers[m] = n
	}
	for _, p := range plan.Instances {
		if err := l.instance(p, instanceName(names, numbers[p.Module])); err != nil {
			return nil, err
		}
	}
	if err := l.start(plan); err != nil {
		return nil, err
	}
	merged, err := merge.Merge(l.in)
	if err != nil {
		var link *merge.LinkError
		if errors.As(err, &link) || errors.Is(err, merge.ErrInvalid) || errors.Is(err, merge.ErrUnsupported) || errors.Is(err, merge.ErrTooLarge) {
			err = fmt.Errorf("make one module of the component: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		return nil, err
	}
	return merged, nil
}

// instanceName is for the names of functions in the stack of a trap.
func instanceName(names map[uint32]string, number int) string {
	if name := names[uint32(number)]; name != "" {
		return name
	}
	return fmt.Sprintf("module%d", number)
}

type lowerer struct {
	in       merge.Input
	reallocs map[component.CoreExportRef]string // the export of the merged module
}

func export(r component.CoreExportRef) merge.Export {
	return merge.Export{Instance: r.Instance, Name: r.Name}
}

// instance adds an instance of a core module.
func (l *lowerer) instance(p component.Planned, name string) error {
	one := merge.Instance{Name: name, Module: p.Module.Bytes, Imports: map[merge.ImportName]merge.Source{}}
	for _, b := range p.Imports {
		at := merge.ImportName{Module: b.Module, Name: b.Name}
		if b.Export != nil {
			one.Imports[at] = export(*b.Export)
			continue
		}
		host, err := l.host(b)
		if err != nil {
			return err
		}
		one.Imports[at] = host
	}
	l.in.Instances = append(l.in.Instances, one)
	return nil
}

// host is the function of package wasip2 or wasihttp that an import is bound to.
func (l *lowerer) host(b component.Bound) (merge.Source, error) {
	h, name := b.Host, b.Host.Name
	switch h.Op {
	case component.Lower:
	case component.ResourceDrop:
		name = "[resource-drop]" + name
	default:
		return nil, refusal("it uses %s, which WASI 0.2 does not need; components of WASI 0.3 do not run yet", h.Op)
	}
	if i, ok := component.ParseInterface(h.Interface); ok && i.Release() == "0.3" {
		return nil, refusal("it imports %q of %q; components of WASI 0.3 do not run yet", name, h.Interface)
	}
	function, err := canonical.Find(h.Interface, name, wasip2.World(), wasihttp.World())
	if err != nil {
		return nil, refusal("it imports %q of %q, which has no such function", name, h.Interface)
	}
	signature := function.Signature()
	switch {
	case h.Options.Async:
		return nil, refusal("it lowers %q of %q as an asynchronous function; components of WASI 0.3 do not run yet", name, h.Interface)
	case h.Options.Encoding != component.UTF8:
		return nil, refusal("it lowers %q of %q with strings that are not UTF-8", name, h.Interface)
	case signature.Realloc && h.Options.Realloc == nil:
		return nil, refusal("it lowers %q of %q without the option realloc", name, h.Interface)
	case string(signature.Params) != string(b.Params) || string(signature.Results) != string(b.Results):
		return nil, refusal("it imports %q of %q with another signature than WASI 0.2 has", name, h.Interface)
	}
	realloc := ""
	if signature.Realloc {
		realloc = l.realloc(*h.Options.Realloc)
	}
	return merge.Host{
		Module: h.Interface, Name: canonical.ImportName(name, realloc),
		Type: format.FuncType{Params: b.Params, Results: b.Results},
	}, nil
}

// realloc is the name by which the merged module exports an allocator.
func (l *lowerer) realloc(r component.CoreExportRef) string {
	name, known := l.reallocs[r]
	if !known {
		name = fmt.Sprintf("realloc%d", len(l.reallocs))
		l.reallocs[r] = name
		l.in.Exports = append(l.in.Exports, merge.FinalExport{Name: name, Of: export(r)})
	}
	return name
}

// start adds what a host calls: a module whose _start does what a host does that runs the
// component, and one whose HandleName does what a host does that has a request answered.
func (l *lowerer) start(plan *component.Plan) error {
	found := map[string]bool{}
	for _, e := range plan.Exports {
		if !isEntry(e) || found[e.Name] { // another version of it
			continue
		}
		if e.Options.Async {
			return refusal("it lifts %q of %q as an asynchronous function; components of WASI 0.3 do not run yet", e.Name, e.Interface)
		}
		found[e.Name] = true
		const exit = "exit"
		imports := map[merge.ImportName]merge.Source{{Module: e.Name, Name: e.Name}: export(e.Core)}
		if e.Options.PostReturn != nil {
			imports[merge.ImportName{Module: "post-return", Name: "post-return"}] = export(*e.Options.PostReturn)
		}
		module, as := handler(e.Options.PostReturn != nil), HandleName
		if e.Name == "run" {
			module, as = starter(e.Options.PostReturn != nil), startName
			imports[merge.ImportName{Module: exit, Name: exit}] = merge.Host{
				Module: "wasi:cli/exit@0.2.0", Name: exit, Type: format.FuncType{Params: []api.ValueType{api.ValueTypeI32}},
			}
		}
		l.in.Instances = append(l.in.Instances, merge.Instance{Name: e.Name, Module: module, Imports: imports})
		l.in.Exports = append(l.in.Exports, merge.FinalExport{Name: as, Of: merge.Export{Instance: len(l.in.Instances) - 1, Name: as}})
	}
	return nil
}

func refusal(text string, args ...any) error {
	return &component.RefusedError{Reasons: []string{fmt.Sprintf(text, args...)}}
}
