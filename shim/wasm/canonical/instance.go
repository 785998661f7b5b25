package canonical

import (
	"context"
	"sync/atomic"

	"github.com/tetratelabs/wazero/api"
)

// Instance is what host functions know of one instance of a guest's module.
type Instance struct {
	// Owner is what the package that made the instance keeps of it, Extension what one that adds a
	// world to it does. Both are set before the first call.
	Owner, Extension any

	// Tasks continues operations, nil where no function is asynchronous.
	Tasks Tasks

	handles  table
	reallocs map[string]api.Function // by the name of the guest's export
	leaving  bool                    // the guest's realloc runs: it must not call imports
	life     context.Context         // until Close, nil before somebody asks
	die      context.CancelFunc      // ends life
	ended    atomic.Pointer[error]   // why no host function runs any more
	call     Call                    // scratch space: an instance has one call at a time
	flat     [maxParams]uint64       // likewise, of parameters that are in memory
}

// carrier is a context that has an instance.
type carrier struct {
	context.Context
	instance *Instance
}

// key is that of the instance, for contexts made of a carrier.
type key struct{}

func (c *carrier) Value(k any) any {
	if k == (key{}) {
		return c.instance
	}
	return c.Context.Value(k)
}

// With is the context for calls of the instance.
func With(ctx context.Context, i *Instance) context.Context {
	return &carrier{Context: ctx, instance: i}
}

// From returns the instance that a call is one of, nil for none.
func From(ctx context.Context) *Instance {
	if c, ok := ctx.(*carrier); ok { // wazero hands the context on as it is
		return c.instance
	}
	i, _ := ctx.Value(key{}).(*Instance)
	return i
}

// End ends the instance from outside: its next call of a host function, or the one that it is in,
// ends it with err. The first err counts. Who calls it also wakes what the call waits for.
func (i *Instance) End(err error) { i.ended.CompareAndSwap(nil, &err) }

// Ended is the error of End, nil before.
func (i *Instance) Ended() error {
	if err := i.ended.Load(); err != nil {
		return *err
	}
	return nil
}

// Life is a context that ends when the instance is closed. It is for what a trap may take from the
// guest before it has a handle of it. Only calls of the instance may ask for it.
func (i *Instance) Life() context.Context {
	if i.life == nil {
		i.life, i.die = context.WithCancel(context.Background())
	}
	return i.life
}

// Close drops the handles that are left. No call may run or follow.
func (i *Instance) Close() {
	if i.die != nil {
		defer i.die()
	}
	if i.Tasks != nil {
		i.Tasks.Close()
	}
	i.handles.clear()
	i.reallocs, i.call = nil, Call{}
}

// realloc is the guest's function of that name.
func (i *Instance) realloc(mod api.Module, name string) api.Function {
	f, known := i.reallocs[name]
	if !known {
		f = mod.ExportedFunction(name)
		if i.reallocs == nil {
			i.reallocs = map[string]api.Function{}
		}
		i.reallocs[name] = f
	}
	return f
}
