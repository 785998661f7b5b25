package guest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/linear"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// guest is the module and what it is given.
type guest struct {
	root   *tree  // the container's tree
	cache  string // directory of the compiled module, in this process's root
	shared bool   // the machine code is one for all guests of the module
	code   []byte // that machine code, mapped
	size   int    // of the module, in bytes
	ports  []port // of the announced listeners

	ctx      context.Context
	host     host
	memory   *linear.Pool
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	module   api.Module
	http     *httpGuest // of a component that answers requests, nil for others
	pace     pace       // its collections
}

// load reads the module from its entry, checks its imports, and instantiates it unless that would
// run its code already.
func (p *process) load() error {
	g := &p.guest
	g.memory = linear.New(p.memoryOptions())
	if err := p.openImage(); err != nil {
		return err
	}
	g.ctx = experimental.WithMemoryAllocator(context.Background(), g.memory)
	if p.config.Load.Bare && !compile.Native() {
		return faultf(link.Stale, "compiled module has no code that could be interpreted")
	}
	if err := g.openRuntime(g.cache); err != nil {
		return err
	}
	binary, err := mapFile(path.Join(g.cache, compile.ModuleName))
	if err != nil {
		return faultf(link.Stale, "open compiled module: %w", err)
	}
	g.size = len(binary)
	if g.compiled, err = g.runtime.CompileModule(g.ctx, binary); err != nil {
		// With a fitting entry nothing is compiled, so that nothing is written into the entry.
		if p.config.Load.Bare || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EROFS) {
			return faultf(link.Stale, "compiled module does not fit this engine: %w", err)
		}
		return faultf(link.Invalid, "load module: %w", err)
	}
	if err := g.linkCode(p.config.Load); err != nil {
		return err
	}
	imports, err := g.imports(binary)
	if err != nil {
		return err
	}
	if err := p.openHost(imports); err != nil {
		return err
	}
	if err := g.checkImports(imports); err != nil {
		return err
	}
	if p.config.StartFunction {
		return nil
	}
	if g.http != nil {
		return g.http.try()
	}
	return g.instantiate()
}

// memoryOptions are how large the guest's linear memory may become. One that answers requests has a
// memory for each instance.
func (p *process) memoryOptions() linear.Options {
	o := linear.Options{Ceiling: p.config.Memory}
	if p.answers() {
		o.Seats, o.Each = p.config.HTTP.Seats(), p.config.HTTP.Memory
	}
	return o
}

// openRuntime makes the runtime, which looks for machine code in a directory that a compiled module
// may come to later.
func (g *guest) openRuntime(cache string) error {
	if g.runtime != nil {
		return nil
	}
	code, err := wazero.NewCompilationCacheWithDir(cache)
	if err != nil {
		return faultf(link.Stale, "open compiled module: %w", err)
	}
	g.runtime = wazero.NewRuntimeWithConfig(context.Background(), compile.Configure(wazero.NewRuntimeConfig()).WithCompilationCache(code))
	return nil
}

// instantiate makes the module's memory and tables. From then on this process gets no new code.
func (g *guest) instantiate() error {
	module, err := linear.Instantiate(g.ctx, g.runtime, g.compiled)
	if err != nil {
		return uninstantiated(err)
	}
	if module.ExportedFunction("_start") == nil { // a component that answers requests may have none
		return faultf(link.Invalid, "run module: it exports no function _start, so it is no command")
	}
	g.module = module
	return nil
}

// uninstantiated is the class of an error that fails the instantiation of a module.
func uninstantiated(err error) error {
	var memory *linear.StartError
	switch {
	case !errors.As(err, &memory):
		return faultf(link.Invalid, "instantiate module: %w", err)
	case memory.Image:
		return faultf(link.Stale, "instantiate module: %w", err)
	default:
		return faultf(link.Precondition, "instantiate module: %w", err)
	}
}

// mapFile maps a file read-only, so that all guests of a module share its pages. The mapping stays:
// wazero keeps references into it.
func mapFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, errors.New("file is empty")
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: name, Err: err}
	}
	return data, nil
}
