package compile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/cage"
)

// What a child finds and leaves.
const (
	childModule = 3       // descriptor of the module
	childOut    = 4       // descriptor of the directory that becomes its root and receives the entry
	startMarker = "start" // file in the directory: the module has a start function
)

// childArgs is how the parent calls the child.
var childArgs = []string{"compile", "-child"}

// exitExhausted is the child's exit code when it ran out of memory: the Go runtime's own.
const exitExhausted = 2

// Limits of a child.
const (
	maxSeconds = 600
	maxData    = 3 << 30 // bytes of memory; a 32-bit child cannot have as much anyway
)

// child compiles the module on childModule into childOut. It is root only until it is locked in.
func child() int {
	module := os.NewFile(childModule, "module")
	info, err := module.Stat()
	if err == nil {
		err = lockIn(info.Size())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	data, err := io.ReadAll(module)
	if err != nil {
		fmt.Fprintf(os.Stderr, "read module: %v\n", err)
		return 1
	}
	lean, start, err := strip(data)
	if err != nil {
		fmt.Fprintf(os.Stderr, "module is not valid: %v\n", err)
		return exitRefused
	}
	if err := build(lean); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, errRefused) {
			return exitRefused
		}
		return 1
	}
	if err := write(lean, start); err != nil {
		fmt.Fprintf(os.Stderr, "write entry: %v\n", err)
		return 1
	}
	return 0
}

// lockIn makes childOut the root and gives up everything that compiling does not need.
func lockIn(size int64) error {
	if err := unix.Fchdir(childOut); err != nil {
		return fmt.Errorf("enter output directory: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	unix.Close(childOut)
	for _, l := range []struct {
		resource int
		limit    uint64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_CPU, maxSeconds},
		{unix.RLIMIT_DATA, maxData},
		{unix.RLIMIT_FSIZE, uint64(size)*64 + 16<<20},
		{unix.RLIMIT_NOFILE, 64},
	} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.limit, Max: l.limit}); err != nil {
			return fmt.Errorf("set resource limit %d: %w", l.resource, err)
		}
	}
	debug.SetMemoryLimit(maxData / 4 * 3)
	if err := cage.Drop(cage.Nobody, cage.Nobody, nil); err != nil {
		return err
	}
	return cage.NewFilter(cage.CompileCalls(), cage.Errno(unix.ENOSYS)).Install()
}

var errRefused = errors.New("module is not valid")

// build validates the module and lets wazero write its machine code into the root directory.
func build(module []byte) error {
	ctx := experimental.WithCompilationWorkers(context.Background(), runtime.GOMAXPROCS(0))
	cache, err := wazero.NewCompilationCacheWithDir("/")
	if err != nil {
		return fmt.Errorf("open output directory: %w", err)
	}
	r := wazero.NewRuntimeWithConfig(ctx, RuntimeConfig().WithCompilationCache(cache))
	compiled, err := r.CompileModule(ctx, module)
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	for _, f := range compiled.ExportedFunctions() {
		for _, name := range f.ExportNames() {
			if name == "_start" {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: it exports no function _start, so it is no command", errRefused)
}

// RuntimeConfig is wazero as modules are compiled and run here. Both sides must agree: a cached
// entry is not validated again.
func RuntimeConfig() wazero.RuntimeConfig {
	return wazero.NewRuntimeConfig().WithDebugInfoEnabled(false)
}

func write(module []byte, start bool) error {
	if err := os.WriteFile("/"+ModuleName, module, 0o600); err != nil {
		return err
	}
	if start {
		return os.WriteFile("/"+startMarker, nil, 0o600)
	}
	return nil
}
