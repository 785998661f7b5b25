package canonical

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Options are the canonical options of one lowered function. The memory is the one that the guest's
// module has, and strings are UTF-8.
type Options struct {
	Realloc string // the export of the guest's module that allocates memory for results, "" = none
	Async   bool   // it is lowered asynchronously
}

// Import is an import of a lowered component's module. Module and Name are as the module has them.
// Interface and Function say what is imported where that differs: a component may lower one
// function twice with different options, and its module must then have two names for it.
type Import struct {
	Module, Name        string
	Interface, Function string // "" = Module, Name
	Options             Options
}

// asyncPrefix marks the name of a function that is lowered asynchronously.
const asyncPrefix = "[async-lower]"

// ImportName is the name by which a lowered component's module imports a function that was lowered
// with these options, of which Realloc is an export of the module. ParseImport is its inverse.
func ImportName(function string, o Options) string {
	if o.Async {
		function = asyncPrefix + function
	}
	if o.Realloc == "" {
		return function
	}
	return function + "#" + o.Realloc // names of functions have no "#"
}

// ParseImport tells what is imported by a name that ImportName made, also where JoinImports has
// changed it.
func ParseImport(module, name string) Import {
	i, function := Import{Module: module, Name: name, Interface: module}, name
	if module == Joined {
		i.Interface, function, _ = strings.Cut(name, "#")
	}
	function, i.Options.Realloc, _ = strings.Cut(function, "#")
	i.Function, i.Options.Async = strings.CutPrefix(function, asyncPrefix)
	return i
}

// binding is a function for one import of the guest.
type binding struct {
	*Function
	options   Options
	name      string // for traps
	signature Signature
	spill     spill // of parameters that are in memory, nil for flat ones
}

// Provide defines in r the modules that these imports name, of functions of these worlds.
//
// # Errors
//
// ErrNotFound for a function that is not served, ErrInvalidArgument for one that needs the option
// realloc and has none.
func Provide(ctx context.Context, r wazero.Runtime, imports []Import, worlds ...World) error {
	modules := map[string]map[string]*binding{}
	for _, i := range imports {
		b, err := bind(i, worlds)
		if err != nil {
			return fmt.Errorf("provide import %q.%q: %w", i.Module, i.Name, err)
		}
		if modules[i.Module] == nil {
			modules[i.Module] = map[string]*binding{}
		}
		if other := modules[i.Module][i.Name]; other != nil && (other.name != b.name || other.options != b.options) {
			return fmt.Errorf("provide import %q.%q: it is there twice with different options: %w", i.Module, i.Name, errdefs.ErrInvalidArgument)
		}
		modules[i.Module][i.Name] = b
	}
	for module, bindings := range modules {
		builder := r.NewHostModuleBuilder(module)
		for name, b := range bindings {
			builder = builder.NewFunctionBuilder().WithGoModuleFunction(b, b.signature.Params, b.signature.Results).Export(name)
		}
		compiled, err := builder.Compile(ctx)
		if err == nil { // wazero's own source of random numbers takes long to seed, and nothing asks it
			_, err = r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithRandSource(rand.Reader))
		}
		if err != nil {
			return fmt.Errorf("define module %q: %w", module, err)
		}
	}
	return nil
}

// bind finds the function of an import.
func bind(i Import, worlds []World) (*binding, error) {
	iface, name := i.Module, i.Name
	if i.Interface != "" {
		iface, name = i.Interface, i.Function
	}
	f, err := Find(iface, name, worlds...)
	if err != nil {
		return nil, err
	}
	if f.Reallocs && i.Options.Realloc == "" {
		return nil, fmt.Errorf("use canonical options: realloc is missing: %w", errdefs.ErrInvalidArgument)
	}
	b := &binding{Function: f, options: i.Options, name: iface + "#" + name, signature: f.Signature()}
	if i.Options.Async {
		if !f.Async {
			return nil, fmt.Errorf("use canonical options: it is no asynchronous function: %w", errdefs.ErrInvalidArgument)
		}
		b.signature = f.AsyncSignature()
		if len(f.flat()) > maxFlat {
			b.spill = parseSpill(f.Spill)
		}
	}
	return b, nil
}

// Call is a call of the guest's: see api.GoModuleFunction.
func (b *binding) Call(ctx context.Context, mod api.Module, stack []uint64) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *Trap:
			t := *r
			t.Import = b.name
			panic(&t)
		default: // the guest's exit, its end in realloc, or the error of End
			panic(r)
		}
	}()
	i := From(ctx)
	switch {
	case i == nil:
		Trapf("called by no instance")
	case i.leaving:
		Trapf("called by a realloc, which must not call imports")
	}
	i.mayGoOn()
	i.call = Call{Instance: i, Context: ctx, Module: mod, Memory: mod.Memory(), bound: b}
	c := &i.call
	if b.options.Async {
		b.callAsync(c, stack)
		return
	}
	var out uint32
	if b.Answer.Size > 0 {
		out = b.pointer(c, stack[len(b.Params)-1], b.Answer.Size, b.Answer.Align)
	}
	err := b.Function.Call(c, stack, out+b.Answer.Payload)
	if o, goes := err.(Operation); goes {
		err = i.Tasks.Wait(c, o, out+b.Answer.Payload)
	}
	i.mayGoOn()
	b.answer(c, out, err)
}

// pointer checks where a result is to be written.
func (b *binding) pointer(c *Call, at uint64, size, align uint32) uint32 {
	out := uint32(at)
	if out%align != 0 {
		Trapf("result pointer %#x is not aligned to %d", out, align)
	}
	c.View(out, uint64(size))
	return out
}

// answer writes how the function ended, beside its payload.
func (b *binding) answer(c *Call, out uint32, err error) {
	switch {
	case b.Answer.Fail == nil:
		if err != nil {
			Trapf("%v", err)
		}
	case err == nil:
		c.Put8(out, 0)
	default:
		c.Put8(out, 1)
		b.Answer.Fail(c, out+b.Answer.Payload, err)
	}
}

// mayGoOn ends the guest whose instance was ended.
func (i *Instance) mayGoOn() {
	if err := i.ended.Load(); err != nil {
		panic(*err)
	}
}
