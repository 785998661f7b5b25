package guest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"unsafe"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// guest is the module and what it is given.
type guest struct {
	root   *tree  // the container's tree
	cache  string // directory of the compiled module, in this process's root
	shared bool   // the machine code is one for all guests of the module
	size   int    // of the module, in bytes
	ports  []port // of the announced listeners

	ctx      context.Context
	host     host
	memory   *memory
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	module   api.Module
}

// load reads the module from its entry, checks its imports, and instantiates it unless that would
// run its code already.
func (p *process) load() error {
	g := &p.guest
	g.memory = newMemory(p.config.Memory)
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
	if err := p.share(); err != nil {
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
	return g.instantiate()
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
func (g *guest) instantiate() (err error) {
	defer func() {
		if g.memory.err != nil {
			_ = recover() // the panic of memory.initial
			err = faultf(link.Precondition, "instantiate module: %w", g.memory.err)
		}
	}()
	module, err := g.runtime.InstantiateModule(g.ctx, g.compiled,
		wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if g.memory.imageErr != nil {
		return faultf(link.Stale, "instantiate module: %w", g.memory.imageErr)
	}
	if err != nil {
		return faultf(link.Invalid, "instantiate module: %w", err)
	}
	g.module = module
	return nil
}

// linear is where the reservation of linear memory lies.
func (g *guest) linear() (base, size uint64) {
	r := g.memory.reservation
	if len(r) == 0 {
		return 0, 0
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r)))), uint64(len(r))
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
