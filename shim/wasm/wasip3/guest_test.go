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

// made is a guest's compiled module, and the host of its instances.
type made struct {
	context  context.Context
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	host     *wasip2.Host
}

// make lowers and compiles the component.
func (g *guest) make(t testing.TB) (*made, error) {
	lowered, err := lower.Lower(g.file)
	if err != nil {
		return nil, err
	}
	h, err := wasip2.New(wasip2.Config{
		Args: g.args, Env: g.env, Stdin: int(g.stdio[0].Fd()), Stdout: int(g.stdio[1].Fd()), Stderr: int(g.stdio[2].Fd()),
		Preopens: []wasip2.Preopen{{FD: wasitest.OpenDir(t, g.root), Name: "fs-tests.dir"}},
	})
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	m := &made{context: ctx, runtime: wasitest.Runtime(ctx), host: h}
	if m.compiled, err = m.runtime.CompileModule(ctx, lowered.Module); err != nil {
		m.close()
		return nil, err
	}
	var imports []canonical.Import
	for _, f := range m.compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		imports = append(imports, canonical.ParseImport(module, name))
	}
	if err := canonical.Provide(ctx, m.runtime, imports, wasip2.World(), wasip3.World(), wasihttp.Service(), async.World()); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *made) close() {
	m.runtime.Close(m.context)
	m.host.Close()
}

// run runs the component and returns its exit code, and the error of a trap.
func (g *guest) run(t testing.TB) (uint32, error) {
	m, err := g.make(t)
	if err != nil {
		return 1, err
	}
	defer m.close()
	i, err := m.host.NewInstance()
	if err != nil {
		return 1, err
	}
	defer i.Close()
	i.ABI().Tasks = async.New(i.System())
	ctx := canonical.With(m.context, i.ABI())
	module, err := m.runtime.InstantiateModule(ctx, m.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return exitTrap, err
	}
	_, err = module.ExportedFunction("_start").Call(ctx)
	var exit *sys.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode(), nil
	case err != nil:
		return exitTrap, err
	}
	return 0, nil
}
