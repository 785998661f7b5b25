package wasip3_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/component/lower"
	"github.com/sunaba-project/sunaba/shim/wasm/wasihttp"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip3"
	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// guest is a component that is lowered and run in this process.
type guest struct {
	file      []byte
	args, env []string
	stdio     [3]*os.File
	root      string
}

// exitTrap is the exit code of a guest that trapped.
const exitTrap = 134

// run runs the component and returns its exit code, and the error of a trap.
func (g *guest) run(t testing.TB) (uint32, error) {
	lowered, err := lower.Lower(g.file)
	if err != nil {
		return 1, err
	}
	h, err := wasip2.New(wasip2.Config{
		Args: g.args, Env: g.env, Stdin: int(g.stdio[0].Fd()), Stdout: int(g.stdio[1].Fd()), Stderr: int(g.stdio[2].Fd()),
		Preopens: []wasip2.Preopen{{FD: wasitest.OpenDir(t, g.root), Name: "fs-tests.dir"}},
	})
	if err != nil {
		return 1, err
	}
	defer h.Close()
	i, err := h.NewInstance()
	if err != nil {
		return 1, err
	}
	defer i.Close()
	i.ABI().Tasks = async.New(i.System())
	ctx := canonical.With(context.Background(), i.ABI())
	r := wasitest.Runtime(ctx)
	defer r.Close(ctx)
	compiled, err := r.CompileModule(ctx, lowered.Module)
	if err != nil {
		return 1, err
	}
	var imports []canonical.Import
	for _, f := range compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		imports = append(imports, canonical.ParseImport(module, name))
	}
	if err := canonical.Provide(ctx, r, imports, wasip2.World(), wasip3.World(), wasihttp.Service(), async.World()); err != nil {
		return 1, err
	}
	m, err := r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return exitTrap, err
	}
	_, err = m.ExportedFunction("_start").Call(ctx)
	var exit *sys.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode(), nil
	case err != nil:
		return exitTrap, err
	}
	return 0, nil
}
