package task

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
)

type engines []shim.Engine // asked in order

// choose returns the engine that runs the bundle. If that does not prewarm, a prewarmed process in
// the container's cgroup is ended.
func (all engines) choose(ctx context.Context, b *shim.Bundle) (shim.Engine, error) {
	for _, e := range all {
		handles, err := e.Handles(ctx, b)
		if err != nil {
			return nil, err
		}
		if !handles {
			continue
		}
		if e.Name() == annotation.Wasm && b.Facts.HandlerType == annotation.OCI {
			return nil, fmt.Errorf("container %q is a WebAssembly module and its pod's handler runs Linux containers: "+
				"use a RuntimeClass whose handler has type wasm: %w", b.ID, errdefs.ErrFailedPrecondition)
		}
		if _, ok := e.(shim.Preparer); !ok && b.Spec.Linux != nil {
			all.vacate(b.Spec.Linux.CgroupsPath)
		}
		return e, nil
	}
	return nil, fmt.Errorf("bundle %q: no engine runs it: %w", b.Path, errdefs.ErrFailedPrecondition)
}

// adopter returns the engine of that name, which made a container whose shim has died.
func (all engines) adopter(name string) (shim.Adopter, error) {
	i := slices.IndexFunc(all, func(e shim.Engine) bool { return e.Name() == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no engine %q: %w", name, errdefs.ErrNotFound)
	}
	engine, ok := all[i].(shim.Adopter)
	if !ok {
		return nil, fmt.Errorf("engine %q adopts no containers: %w", name, errdefs.ErrNotImplemented)
	}
	return engine, nil
}

// each calls a function with those that prewarm.
func (all engines) each(call func(shim.Preparer) error) error {
	var errs []error
	for _, e := range all {
		if preparer, ok := e.(shim.Preparer); ok {
			errs = append(errs, call(preparer))
		}
	}
	return errors.Join(errs...)
}

// vacate has the engines leave the cgroup of a container that is not one of theirs.
func (all engines) vacate(cgroup string) {
	if cgroup == "" {
		return
	}
	_ = all.each(func(p shim.Preparer) error { p.Vacate(cgroup); return nil })
}
