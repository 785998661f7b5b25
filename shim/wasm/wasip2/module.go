package wasip2

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/wasip2/codes"
)

// Options are the canonical options of one lowered function. The memory is the one that the guest's
// module has, and strings are UTF-8.
type Options struct {
	Realloc string // the export of the guest's module that allocates memory for results, "" = none
}

// Import is an import of a lowered component's module. Module and Name are as the module has them.
// Interface and Function say what is imported where that differs: a component may lower one
// function twice with different options, and its module must then have two names for it.
type Import struct {
	Module, Name        string
	Interface, Function string // "" = Module, Name
	Options             Options
}

// ImportName is the name by which a lowered component's module imports a function that was lowered
// with this realloc, an export of the module ("" = none). ParseImport is its inverse.
func ImportName(function, realloc string) string {
	if realloc == "" {
		return function
	}
	return function + "#" + realloc // names of functions have no "#"
}

// ParseImport tells what is imported by a name that ImportName made.
func ParseImport(module, name string) Import {
	function, realloc, _ := strings.Cut(name, "#")
	return Import{Module: module, Name: name, Interface: module, Function: function, Options: Options{Realloc: realloc}}
}

// binding is a function for one import of the guest.
type binding struct {
	*function
	host    *Host
	options Options
	name    string // for traps
}

// Instantiate defines in r the modules that these imports name. Imports of others are passed over.
//
// # Errors
//
// ErrNotFound for a function that is not served, ErrInvalidArgument for one that needs the option
// realloc and has none.
func (h *Host) Instantiate(ctx context.Context, r wazero.Runtime, imports []Import) error {
	modules := map[string]map[string]*binding{}
	for _, i := range imports {
		b, err := h.bind(i)
		if err != nil {
			return fmt.Errorf("provide import %q.%q: %w", i.Module, i.Name, err)
		}
		if modules[i.Module] == nil {
			modules[i.Module] = map[string]*binding{}
		}
		if other := modules[i.Module][i.Name]; other != nil && *other != *b {
			return fmt.Errorf("provide import %q.%q: it is there twice with different options: %w", i.Module, i.Name, errdefs.ErrInvalidArgument)
		}
		modules[i.Module][i.Name] = b
	}
	for module, bindings := range modules {
		builder := r.NewHostModuleBuilder(module)
		for name, b := range bindings {
			builder = builder.NewFunctionBuilder().WithGoModuleFunction(b, types(b.params), types(b.results)).Export(name)
		}
		if _, err := builder.Instantiate(ctx); err != nil {
			return fmt.Errorf("define module %q: %w", module, err)
		}
	}
	return nil
}

// bind finds the function of an import.
func (h *Host) bind(i Import) (*binding, error) {
	iface, name := i.Module, i.Name
	if i.Interface != "" {
		iface, name = i.Interface, i.Function
	}
	f, err := lookup(iface, name)
	if err != nil {
		return nil, err
	}
	if f.reallocs && i.Options.Realloc == "" {
		return nil, fmt.Errorf("use canonical options: realloc is missing: %w", errdefs.ErrInvalidArgument)
	}
	return &binding{function: f, host: h, options: i.Options, name: iface + "#" + name}, nil
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
		default: // the guest's exit, or its end in realloc
			panic(r)
		}
	}()
	if b.host.leaving {
		trapf("called by a realloc, which must not call imports")
	}
	c := b.host.enter(ctx, mod, b)
	var out uint32
	if b.answer.size > 0 {
		out = uint32(stack[len(b.params)-1])
		if out%b.answer.align != 0 {
			trapf("result pointer %#x is not aligned to %d", out, b.answer.align)
		}
		c.view(out, uint64(b.answer.size))
	}
	err := b.call(c, stack, out+b.answer.payload)
	switch {
	case b.answer.fails == traps:
		if err != nil {
			trapf("%v", err)
		}
	case err == nil:
		c.put8(out, 0)
	case b.answer.fails == failsCode:
		c.put8(out, 1)
		c.put8(out+b.answer.payload, c.code(err))
	default:
		c.put8(out, 1)
		c.putStreamError(out+b.answer.payload, err)
	}
}

// code is the error-code of an error, which the sockets have their own numbers for.
func (c *call) code(err error) uint8 {
	if code, own := err.(codes.Socket); own {
		return uint8(code)
	}
	return uint8(codes.OfFile(err))
}

// putStreamError writes a stream-error. A pipe whose other end is gone is closed.
func (c *call) putStreamError(at uint32, err error) {
	if err == errClosed || err == unix.EPIPE {
		c.put8(at, 1)
		return
	}
	c.put8(at, 0)
	c.put32(at+4, c.host.handles.add(&ioError{cause: err}, 0))
}
