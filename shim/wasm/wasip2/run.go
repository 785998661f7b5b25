package wasip2

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"
)

// postReturn is what the name of an export's post-return function starts with.
const postReturn = "cabi_post_"

// Run calls the export wasi:cli/run@0.2.x#run of the guest's module. It returns nil when the guest
// says ok.
//
// # Errors
//
// A *sys.ExitError for a guest that has called exit, also with 0, and with 1 for one whose run
// returned an error. ErrNotFound for a module without that export. Else what wazero makes of a
// trap.
func Run(ctx context.Context, mod api.Module) error {
	name, err := RunName(mod)
	if err != nil {
		return err
	}
	results, err := mod.ExportedFunction(name).Call(ctx)
	if err != nil {
		return err
	}
	failed := uint32(results[0])
	if failed > 1 {
		return fmt.Errorf("call %q: %w", name, &Trap{Import: name, Text: fmt.Sprintf("unexpected discriminant %d", failed)})
	}
	if post := mod.ExportedFunction(postReturn + name); post != nil {
		if _, err := post.Call(ctx, uint64(failed)); err != nil {
			return err
		}
	}
	if failed == 1 {
		return sys.NewExitError(1)
	}
	return nil
}

// RunName is the name of the export that Run calls.
//
// # Errors
//
// ErrNotFound for a module without one.
func RunName(mod api.Module) (string, error) {
	for name, f := range mod.ExportedFunctionDefinitions() {
		iface, function, _ := strings.Cut(name, "#")
		bare, version, _ := strings.Cut(iface, "@")
		if bare != "wasi:cli/run" || function != "run" || !served(version) {
			continue
		}
		if len(f.ParamTypes()) != 0 || len(f.ResultTypes()) != 1 || f.ResultTypes()[0] != api.ValueTypeI32 {
			return "", fmt.Errorf("find export %q: it has another signature: %w", name, errdefs.ErrNotFound)
		}
		return name, nil
	}
	return "", fmt.Errorf("find export \"wasi:cli/run@0.2.x#run\": the component is no command of WASI 0.2: %w", errdefs.ErrNotFound)
}
