package components_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/component/lower"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// runLowered runs a component in this process, and returns its exit code: 134 for a trap, as
// wasmtime's. It takes wasmtime's flags --env and --dir.
func runLowered(args []string) int {
	code, err := lowered(context.Background(), args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

func lowered(ctx context.Context, args []string) (int, error) {
	config := wasip2.Config{Stdin: 0, Stdout: 1, Stderr: 2}
	for ; len(args) > 1 && strings.HasPrefix(args[0], "--"); args = args[2:] {
		if args[0] == "--env" {
			config.Env = append(config.Env, args[1])
			continue
		}
		part := strings.Split(args[1], "::")
		fd, err := unix.Open(part[0], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 128, fmt.Errorf("open %q: %w", part[0], err)
		}
		config.Preopens = append(config.Preopens, wasip2.Preopen{FD: fd, Name: part[1]})
	}
	file, err := os.ReadFile(args[0])
	if err != nil {
		return 128, err
	}
	config.Args = args
	merged, err := lower.Lower(file)
	if err != nil {
		return 128, err
	}
	h, err := wasip2.New(config)
	if err != nil {
		return 128, err
	}
	defer h.Close()
	cache, err := wazero.NewCompilationCacheWithDir(os.Getenv("SUNABA_COMPONENTS_CACHE"))
	if err != nil {
		return 128, err
	}
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache).
		WithCoreFeatures(api.CoreFeaturesV2|experimental.CoreFeaturesTailCall|experimental.CoreFeaturesExtendedConst))
	defer r.Close(ctx)
	compiled, err := r.CompileModule(ctx, merged.Module)
	if err != nil {
		return 128, err
	}
	var imports []canonical.Import
	for _, f := range compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		imports = append(imports, canonical.ParseImport(module, name))
	}
	if err := canonical.Provide(ctx, r, imports, wasip2.World()); err != nil {
		return 128, err
	}
	i, err := h.NewInstance()
	if err != nil {
		return 128, err
	}
	defer i.Close()
	ctx = canonical.With(ctx, i.ABI())
	_, err = r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig())
	var exit *sys.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		return int(exit.ExitCode()), nil
	default:
		return 134, err
	}
}
