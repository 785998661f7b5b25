package shims

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

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
	err := unprepare(ctx, pod, shim)
	bundles, gerr := filepath.Glob(filepath.Join(s.o.Dir(pod.ID), "*", bundleConfig))
	err = errors.Join(err, gerr)
	left := false
	for _, file := range bundles {
		dir := filepath.Dir(file)
		err = errors.Join(err, endTask(ctx, shim, filepath.Base(dir)))
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

// unprepare ends what the shim has prewarmed for the pod's next container.
func unprepare(ctx context.Context, pod state.Sandbox, shim *client.Client) error {
	if err := shim.Unprepare(ctx, pod.ID); err != nil {
		return fmt.Errorf("end prewarmed guest process: %w", err)
	}
	return nil
}

// endTask ends and removes a container that nobody else ends.
func endTask(ctx context.Context, shim *client.Client, id string) error {
	_, err := shim.Delete(ctx, id, "")
	if errdefs.IsFailedPrecondition(err) { // it runs
		if err = shim.Kill(ctx, id, "", syscall.SIGKILL, true); err == nil || errdefs.IsNotFound(err) {
			_, err = shim.Wait(ctx, id, "")
		}
		if err == nil || errdefs.IsNotFound(err) {
			_, err = shim.Delete(ctx, id, "")
		}
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("end container %q: %w", id, err)
	}
	return nil
}
