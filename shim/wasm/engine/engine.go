package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/reaper"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// Options of the engine.
type Options struct {
	// Self is the binary with the guest and compile faces; "" = this process's own.
	Self string
	// CacheDir holds compiled modules. It is shared by all shims of the node.
	CacheDir string
	// Skip leaves out steps that make a start light.
	Skip compile.Steps
}

// Engine implements shim.Engine.
type Engine struct {
	options Options
	reaper  *reaper.Reaper
	stock   stock
}

var (
	_ shim.Engine   = (*Engine)(nil)
	_ shim.Preparer = (*Engine)(nil)
)

// New makes the engine. Every process it starts is started through r.
func New(options Options, r *reaper.Reaper) (*Engine, error) {
	if options.CacheDir == "" {
		return nil, errors.New("wasm engine: no cache directory")
	}
	options.Self = cmp.Or(options.Self, "/proc/self/exe")
	return &Engine{options: options, reaper: r}, nil
}

// Name implements shim.Engine.
func (e *Engine) Name() string { return "wasm" }

// Create implements shim.Engine. A module that is not compiled yet is compiled now. What is wrong
// with the module (it does not validate, it lacks an import, it is a component) is
// ErrInvalidArgument; what the container or host cannot give it is ErrFailedPrecondition.
func (e *Engine) Create(ctx context.Context, b *shim.Bundle, io shim.IO, _ shim.Options) (shim.Container, error) {
	if err := check(b); err != nil {
		return nil, err
	}
	own := e.steps(b.Facts.OptimizeGo)
	c, err := e.create(ctx, b, io, own, true)
	if errors.Is(err, errPrewarmed) {
		c, err = e.create(ctx, b, io, own, false)
	}
	for _, skip := range []compile.Steps{own, compile.AllSteps} {
		if f, ok := errors.AsType[*failure](err); !ok || f.message.Class != link.Stale {
			break
		}
		// The entry verified but is not what this engine wants: made anew it is, or at last one
		// that is as plain as can be.
		if err := compile.Drop(e.options.CacheDir, c.entry.Digest); err != nil {
			return nil, err
		}
		c, err = e.create(ctx, b, io, skip, false)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// check refuses what a guest cannot be.
func check(b *shim.Bundle) error {
	if b.Spec == nil || b.Spec.Process == nil || len(b.Spec.Process.Args) == 0 {
		return fmt.Errorf("no command: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// steps are those that are left out for a bundle's modules.
func (e *Engine) steps(optimizeGo bool) compile.Steps {
	if optimizeGo {
		return e.options.Skip
	}
	return e.options.Skip | compile.Without(false)
}

// create makes the container, or leaves nothing but, for the caller's next try, its entry. With
// prewarmed its first process is the prewarmed one, if there is one that fits.
func (e *Engine) create(ctx context.Context, b *shim.Bundle, io shim.IO, skip compile.Steps, prewarmed bool) (*container, error) {
	c := newContainer(e, b)
	birth, err := initBirth(b.Spec)
	if err != nil {
		return nil, err
	}
	defer birth.close()
	birth.io = io
	var n *newborn
	if prewarmed {
		n = e.take(b, &birth)
	}
	// A process takes its time to start: meanwhile the module is looked up (or compiled) and the
	// cgroup made.
	module := later(func() (compile.Entry, error) { return e.entry(ctx, b, skip) })
	birth.cgroup = later(func() (*limited, error) { return n.makeCgroup(b) })
	if n == nil {
		n = e.fork(&birth)
	}
	var moduleErr, groupErr error
	c.entry, moduleErr = module()
	c.cgroup, groupErr = birth.cgroup()
	if err = errors.Join(moduleErr, groupErr, n.err); err == nil {
		err = c.cgroup.makeRoom(b.Spec, enginePart(c.entry))
	}
	if err == nil {
		err = e.settle(n, &birth)
	}
	var outfit *outfit
	if err == nil {
		outfit, err = initOutfit(b, c.entry, io, n.prewarmed)
	}
	if err != nil {
		return c, errors.Join(err, e.discard(n), c.cgroup.destroy())
	}
	defer outfit.close()
	c.limit = outfit.config.Memory
	c.init = newProcess(c, io)
	c.init.adopt(n.child, n.link, outfit.checkCode())
	c.init.configure(outfit)
	if err := c.init.awaitReady(ctx); err != nil {
		e.destroy(n.child)
		<-c.init.exited
		return c, errors.Join(n.blame(err), c.cgroup.destroy())
	}
	return c, nil
}

// later calls f at once, beside the caller, and returns how to get what it gave, any number of
// times.
func later[T any](f func() (T, error)) func() (T, error) {
	get := sync.OnceValues(f)
	go get()
	return get
}

// entry is the bundle's compiled module.
func (e *Engine) entry(ctx context.Context, b *shim.Bundle, skip compile.Steps) (compile.Entry, error) {
	if m := b.Facts.Module; m.Path != "" {
		return e.ensure(ctx, m.Path, m.Digest, skip)
	}
	module, err := findModule(b.Rootfs, b.Spec.Process)
	if err != nil {
		return compile.Entry{}, err
	}
	defer module.Close()
	return e.ensure(ctx, fdPath(int(module.Fd())), "", skip)
}

// ensure has a module compiled by a child that the reaper sees.
func (e *Engine) ensure(ctx context.Context, path, digest string, skip compile.Steps) (compile.Entry, error) {
	return compile.Ensure(ctx, compile.Options{
		CacheDir: e.options.CacheDir,
		Self:     e.options.Self,
		Skip:     skip,
		Start: func(cmd *exec.Cmd) (func() int, error) {
			child, err := e.reaper.Start(cmd)
			if err != nil {
				return nil, err
			}
			return func() int {
				<-child.Done
				code, _ := child.Status()
				return code
			}, nil
		},
	}, path, digest)
}
