package components_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/component/lower"
	"github.com/sunaba-project/sunaba/shim/wasm/linear"
	"github.com/sunaba-project/sunaba/shim/wasm/serve"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip3"
)

// serveLowered serves a component in this process, until it is killed, and says where as wasmtime
// does.
func serveLowered(file string) int {
	if err := served(context.Background(), file); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 1
}

func served(ctx context.Context, file string) error {
	component, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	merged, err := lower.Lower(component)
	if err != nil {
		return err
	}
	cache, err := wazero.NewCompilationCacheWithDir(os.Getenv("SUNABA_COMPONENTS_CACHE"))
	if err != nil {
		return err
	}
	ctx = experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0))
	ctx = experimental.WithMemoryAllocator(ctx, linear.New(linear.Options{Seats: serve.DefaultConcurrency}))
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache).
		WithCoreFeatures(api.CoreFeaturesV2|experimental.CoreFeaturesTailCall|experimental.CoreFeaturesExtendedConst))
	compiled, err := r.CompileModule(ctx, merged.Module)
	if err != nil {
		return err
	}
	var imports []canonical.Import
	for _, f := range compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		imports = append(imports, canonical.ParseImport(module, name))
	}
	if err := canonical.Provide(ctx, r, imports, wasip2.World(), wasihttp.World(), wasip3.World(), wasihttp.Service(), async.World()); err != nil {
		return err
	}
	host, err := wasip2.New(wasip2.Config{Env: os.Environ(), Stdin: -1, Stdout: 1, Stderr: 2})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c := &serve.Component{Context: ctx, Runtime: r, Compiled: compiled, Host: host,
		Extension: wasihttp.NewClient(wasihttp.ClientConfig{Root: -1})}
	handler := &wasihttp.Handler{Instances: serve.NewInstances(c, nil, serve.Options{}), Limits: wasihttp.Limits{Time: time.Minute},
		Log: func(r *http.Request, err error) { fmt.Fprintln(os.Stderr, r.URL.Path, err) }}
	fmt.Fprintf(os.Stderr, "Serving HTTP on http://%s/\n", l.Addr())
	return serve.NewServer(l.(*net.TCPListener), handler, nil, func() {}, func() {}).Serve()
}
