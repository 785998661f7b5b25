// Package lower makes one core module of a component of WASI 0.2 or 0.3 that is a command or
// answers HTTP requests, so that it is compiled, cached and started as any other module is: it
// exports _start or HandleName or HandlerName, or _start and one of them, and imports the functions
// of packages wasip2, wasip3 and wasihttp by the names that canonical.ImportName gives them, and
// the built-ins of package async. The loop that calls the callback of an asynchronous function is
// part of the module.
package lower

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/component"
	"github.com/sunaba-project/sunaba/shim/wasm/component/merge"
	"github.com/sunaba-project/sunaba/shim/wasm/format"
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

// host is the function of a world that an import is bound to.
func (l *lowerer) host(b component.Bound) (merge.Source, error) {
	h, name := b.Host, b.Host.Name
	switch h.Op {
	case component.Lower:
	case component.ResourceDrop:
		name = "[resource-drop]" + name
	default:
		return l.builtIn(b)
	}
	function, err := canonical.Find(h.Interface, name, worlds()...)
	if err != nil {
		return nil, refusal("it imports %q of %q, which has no such function", name, h.Interface)
	}
	signature := function.Signature()
	if h.Options.Async {
		if !function.Async {
			return nil, refusal("it lowers %q of %q as an asynchronous function, which it is not", name, h.Interface)
		}
		signature = function.AsyncSignature()
	}
	switch {
	case h.Options.Encoding != component.UTF8:
		return nil, refusal("it lowers %q of %q with strings that are not UTF-8", name, h.Interface)
	case signature.Realloc && h.Options.Realloc == nil:
		return nil, refusal("it lowers %q of %q without the option realloc", name, h.Interface)
	case string(signature.Params) != string(b.Params) || string(signature.Results) != string(b.Results):
		i, _ := component.ParseInterface(h.Interface)
		return nil, refusal("it imports %q of %q with another signature than WASI %s has", name, h.Interface, i.Release())
	}
	options := canonical.Options{Async: h.Options.Async}
	if signature.Realloc {
		options.Realloc = l.realloc(*h.Options.Realloc)
	}
	return merge.Host{
		Module: h.Interface, Name: canonical.ImportName(name, options),
		Type: format.FuncType{Params: b.Params, Results: b.Results},
	}, nil
}

// allocator is the type of the option realloc: old address, old size, alignment and new size.
var allocator = format.FuncType{
	Params: []api.ValueType{api.ValueTypeI32, api.ValueTypeI32, api.ValueTypeI32, api.ValueTypeI32}, Results: []api.ValueType{api.ValueTypeI32},
}

// realloc is the name by which the merged module exports an allocator.
func (l *lowerer) realloc(r component.CoreExportRef) string {
	name, known := l.reallocs[r]
	if !known {
		name = fmt.Sprintf("realloc%d", len(l.reallocs))
		l.reallocs[r] = name
		l.in.Exports = append(l.in.Exports, merge.FinalExport{Name: name, Of: export(r), Type: &allocator})
	}
	return name
}

// start adds what a host calls: a module whose _start does what a host does that runs the
// component, and one whose HandleName or HandlerName does what a host does that has a request
// answered. Of two commands or handlers, the one of WASI 0.3 is run: what makes it adds an empty
// one of 0.2.
func (l *lowerer) start(plan *component.Plan) error {
	found := map[string]component.Lifted{}
	for _, e := range plan.Exports {
		if before, twice := found[e.Name]; isEntry(e) && (!twice || release(before) == "0.2" && release(e) == "0.3") {
			found[e.Name] = e
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if err := l.entry(found[name]); err != nil {
			return err
		}
	}
	return nil
}

// entry adds the module that calls one export.
func (l *lowerer) entry(e component.Lifted) error {
	imports := map[merge.ImportName]merge.Source{{Module: e.Name, Name: e.Name}: export(e.Core)}
	builtIn := func(name string, t format.FuncType) {
		imports[merge.ImportName{Module: name, Name: name}] = merge.Host{Module: canonical.BuiltIns, Name: name, Type: t}
	}
	if e.Options.PostReturn != nil {
		imports[merge.ImportName{Module: "post-return", Name: "post-return"}] = export(*e.Options.PostReturn)
	}
	module, as := handler(e.Options.PostReturn != nil), HandleName
	if e.Name != handleName {
		module, as = starter(e.Options.PostReturn != nil), startName
		imports[merge.ImportName{Module: exitName, Name: exitName}] = merge.Host{
			Module: "wasi:cli/exit@0.2.0", Name: exitName, Type: format.FuncType{Params: []api.ValueType{api.ValueTypeI32}},
		}
	}
	switch {
	case e.Options.Async && release(e) != "0.3":
		return refusal("it lifts %q of %q as an asynchronous function, which it is not", e.Name, e.Interface)
	case e.Name == handleName && release(e) == "0.3" && !e.Options.Async:
		return refusal("it lifts %q of %q as a synchronous function, which is not served", e.Name, e.Interface)
	case e.Options.Async:
		if module = looper(e.Name); e.Name == handleName {
			as = HandlerName
		}
		imports[merge.ImportName{Module: callbackName, Name: callbackName}] = export(*e.Options.Callback)
		builtIn(async.Next, format.FuncType{Params: []api.ValueType{api.ValueTypeI32}, Results: []api.ValueType{api.ValueTypeI64}})
		builtIn(async.Finish, format.FuncType{Results: []api.ValueType{api.ValueTypeI32}})
	}
	l.in.Instances = append(l.in.Instances, merge.Instance{Name: e.Name, Module: module, Imports: imports})
	l.in.Exports = append(l.in.Exports, merge.FinalExport{Name: as, Of: merge.Export{Instance: len(l.in.Instances) - 1, Name: as}})
	return nil
}

func refusal(text string, args ...any) error {
	return &component.RefusedError{Reasons: []string{fmt.Sprintf(text, args...)}}
}
