package sandbox

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

// join makes the sandbox one of its handler's shim.
func (s *Sandbox) join(ctx context.Context, rec state.Sandbox) error {
	c, err := s.manager.shims.Join(ctx, rec.HandlerName, s.ID)
	if err != nil {
		return err
	}
	s.attach(c, true)
	return nil
}

// leave takes from the shared shim whatever it has of the sandbox. What it does not give in time is ended without it.
func (s *Sandbox) leave(ctx context.Context, rec state.Sandbox) error {
	shim := s.Shim()
	if shim == nil || !s.handOver(ctx, rec, shim) {
		s.detach()
		if err := s.cleanUp(ctx); err != nil {
			return err
		}
	}
	s.detach()
	s.cleaning.Lock()
	s.clean = true
	s.cleaning.Unlock()
	s.bury()
	return s.manager.shims.Leave(ctx, rec.HandlerName, s.ID)
}

// handOver has the shim end what it still has of the sandbox, and reports whether nothing is left.
func (s *Sandbox) handOver(ctx context.Context, rec state.Sandbox, shim *client.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, shutdownLimit)
	defer cancel()
	err := s.unprepare(ctx, rec, shim)
	bundles, gerr := filepath.Glob(filepath.Join(s.Dir, "*", bundleConfig))
	err = errors.Join(err, gerr)
	left := false
	for _, file := range bundles {
		dir := filepath.Dir(file)
		err = errors.Join(err, endTask(ctx, shim, filepath.Base(dir)))
		left = left || client.Holds(dir)
	}
	if err == nil && !left {
		err = s.endOthers(ctx, rec)
	}
	if err != nil {
		s.manager.o.Logger.Warn("shim did not give up a sandbox", "sandbox", s.ID, "error", err)
	}
	return err == nil && !left
}

// unprepare ends what the shim has prewarmed for the sandbox's next container.
func (s *Sandbox) unprepare(ctx context.Context, rec state.Sandbox, shim *client.Client) error {
	if err := shim.Unprepare(ctx, rec.ID); err != nil && !errdefs.IsNotImplemented(err) {
		return fmt.Errorf("end prewarmed guest process: %w", err)
	}
	return nil
}

// endTask ends and removes a container of which nobody else takes care any more, also one that the shim made ahead.
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

// endOthers ends processes in the sandbox's own cgroups that no shim knows: it died when it had just made them. A shim that lives,
// for other sandboxes, may be there with a thread.
func (s *Sandbox) endOthers(ctx context.Context, rec state.Sandbox) error {
	var but []int
	if share, ok := s.manager.Share(rec); ok {
		but = []int{share.Shim, share.Keeper}
	}
	drawn, err := s.manager.DrawnLeaves(rec)
	err = errors.Join(err, s.manager.o.Cgroups.End(ctx, s.manager.Leaf(rec, s.ID), but...))
	for _, leaf := range drawn {
		err = errors.Join(err, s.manager.o.Cgroups.End(ctx, leaf, but...))
	}
	return err
}

// EndContainer kills what is in a container's cgroup, without the shim, which does not answer: it may be there with a thread.
func (s *Sandbox) EndContainer(ctx context.Context, leaf string) error {
	rec, err := s.record()
	if err != nil {
		return err
	}
	return s.manager.o.Cgroups.End(ctx, leaf, s.shims(rec)...)
}

// shims are the processes of the shim of a sandbox: in version 1 they are in its cgroups as long as one of their threads is.
func (s *Sandbox) shims(rec state.Sandbox) []int {
	pids := []int{client.ReadPID(s.Dir)}
	if shim := s.Shim(); shim != nil {
		pids = append(pids, shim.PID(), shim.Keeper())
	}
	if share, ok := s.manager.Share(rec); ok {
		pids = append(pids, share.Shim, share.Keeper)
	}
	return pids
}

// bundleConfig is the file by which a bundle is known.
const bundleConfig = "config.json"
