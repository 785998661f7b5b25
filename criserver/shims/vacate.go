package shims

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/shim/client"
)

// bundleConfig is the file by which a bundle is known.
const bundleConfig = "config.json"

// vacate has a shared shim end what it still runs for a pod, and reports whether nothing is left.
func (s *shared) vacate(ctx context.Context, pod state.Sandbox, shim *client.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	err := shim.Unprepare(ctx, pod.ID)
	if err != nil {
		err = fmt.Errorf("end prewarmed guest process: %w", err)
	}
	bundles, gerr := filepath.Glob(filepath.Join(s.o.Dir(pod.ID), "*", bundleConfig))
	err = errors.Join(err, gerr)
	left := false
	for _, file := range bundles {
		dir := filepath.Dir(file)
		id := filepath.Base(dir)
		if rerr := shim.Remove(ctx, id); rerr != nil && !errdefs.IsNotFound(rerr) {
			err = errors.Join(err, fmt.Errorf("end container %q: %w", id, rerr))
		}
		left = left || client.Holds(dir)
	}
	if err == nil && !left {
		err = s.o.endUnrecorded(ctx, pod, s.pids(pod)...)
	}
	if err != nil {
		s.o.Logger.Warn("failed to have the shim give up a sandbox", "sandbox", pod.ID, "error", err)
	}
	return err == nil && !left
}
