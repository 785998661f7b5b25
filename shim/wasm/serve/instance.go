package serve

import (
	"context"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/sunaba-project/sunaba/shim/wasm/async"
	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/component/lower"
	"github.com/sunaba-project/sunaba/shim/wasm/linear"
	"github.com/sunaba-project/sunaba/shim/wasm/wasip2"
)

// Component is a compiled component and what its instances share.
type Component struct {
	// Context has the allocator of linear memories, which are used again.
	Context  context.Context
	Runtime  wazero.Runtime
	Compiled wazero.CompiledModule
	Host     *wasip2.Host
	// Extension is that of the instances: what sends the requests of guests.
	Extension any
}

// Instance is an instance of a component.
type Instance struct {
	wasi   *wasip2.Instance
	ctx    context.Context
	module api.Module
	handle api.Function
	async  bool // handle is of WASI 0.3
}

// ErrNoHandler says that a module has no function that answers requests.
var ErrNoHandler = errors.New("the module exports neither " + lower.HandleName + " nor " + lower.HandlerName)

// Instantiate makes an instance.
//
// # Errors
//
// A linear.StartError where there is no memory for it.
func (c *Component) Instantiate() (*Instance, error) {
	w := c.Host.NewLazyInstance()
	w.System().Parks = true
	w.ABI().Extension, w.ABI().Tasks = c.Extension, async.New(w.System())
	i := &Instance{wasi: w, ctx: canonical.With(c.Context, w.ABI())}
	if err := i.start(c); err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}

func (i *Instance) start(c *Component) error {
	var err error
	if i.module, err = linear.Instantiate(i.ctx, c.Runtime, c.Compiled); err != nil {
		return fmt.Errorf("instantiate module: %w", err)
	}
	if i.handle = i.module.ExportedFunction(lower.HandlerName); i.handle != nil {
		i.async = true
	} else if i.handle = i.module.ExportedFunction(lower.HandleName); i.handle == nil {
		return ErrNoHandler
	}
	return nil
}

// Close gives back what the instance has. It must not run.
func (i *Instance) Close() {
	i.wasi.Close()
	if i.module != nil {
		_ = i.module.Close(context.Background()) // a module that has exited is closed already
	}
}
