package linear

import (
	"context"
	"crypto/rand"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Instantiate makes an instance of a module without a name, and runs none of its exports. The
// context has the allocator.
//
// # Errors
//
// A StartError where there is no memory for it.
func Instantiate(ctx context.Context, r wazero.Runtime, compiled wazero.CompiledModule) (m api.Module, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *StartError:
			err = r
		default:
			panic(r)
		}
	}()
	// wazero's own source of random numbers, which no guest asks, takes a tenth of the time to seed.
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().WithRandSource(rand.Reader)
	return r.InstantiateModule(ctx, compiled, config)
}
