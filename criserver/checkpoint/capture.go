package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/host/regular"
	"github.com/sunaba-project/sunaba/shim/client"
)

// Captured is a container whose state was written down. Dir holds the files of its archive, except
// its CRI status. It is deleted when the function that it is given to returns.
type Captured struct {
	Record state.Container
	Dir    string
}

// Capture writes down the state of running containers of one sandbox, as it was at one moment: all
// of them are paused before the first is captured, and continue after the last one was, whatever
// happens. keep is called then.
//
// # Errors
//
// ErrFailedPrecondition if one does not run, a further one of the sandbox does, or CRIU cannot do
// it; ErrNotFound; context.DeadlineExceeded. Nothing is left of what was captured.
func (s *Service) Capture(ctx context.Context, ids []string, keep func(context.Context, []Captured) error) error {
	work, err := os.MkdirTemp(s.o.Dir, "")
	if err != nil {
		return fmt.Errorf("make work folder: %w", err)
	}
	defer func() {
		if rerr := remove(work); rerr != nil { // what was asked for has been made, or that error is the one to tell
			s.o.Logger.Warn("failed to remove work folder of checkpoint; trying again", "folder", work, "error", rerr)
		}
	}()
	var shim *client.Client
	var recs []state.Container
	for _, id := range ids {
		rec, end, err := s.o.Containers.Hold(id, "checkpoint", state.Running)
		if err != nil {
			return err
		}
		defer end()
		recs = append(recs, rec)
		if shim, err = s.shim(rec); err != nil {
			return err
		}
	}
	captured, err := s.captureAll(ctx, shim, recs, work)
	if err != nil {
		return err
	}
	return keep(ctx, captured)
}

// shim is the shim of a container whose state can be written down.
func (s *Service) shim(rec state.Container) (*client.Client, error) {
	pod, err := s.o.Sandboxes.Get(rec.SandboxID)
	if err == nil {
		err = mapless(pod)
	}
	if err != nil {
		return nil, err
	}
	sb, err := s.o.Sandboxes.Sandbox(rec.SandboxID)
	if err != nil {
		return nil, err
	}
	shim := sb.Shim()
	if shim == nil {
		return nil, fmt.Errorf("checkpoint container %q: its shim has ended: %w", rec.Name(), errdefs.ErrFailedPrecondition)
	}
	return shim, nil
}

// captureAll captures containers while all of them are paused.
func (s *Service) captureAll(
	ctx context.Context, shim *client.Client, recs []state.Container, work string,
) (_ []Captured, err error) {
	for _, rec := range recs {
		defer func() {
			aside, cancel := sandbox.Aside(ctx)
			defer cancel()
			// One that has ended meanwhile, or that was not paused, needs no resuming.
			rerr := shim.Resume(aside, rec.ID)
			if rerr != nil && !errdefs.IsNotFound(rerr) && !errdefs.IsFailedPrecondition(rerr) {
				err = errors.Join(err, fmt.Errorf("resume container %q: %w", rec.Name(), rerr))
			}
		}()
		// Not given up in the middle, where resuming could overtake it.
		aside, cancel := sandbox.Aside(ctx)
		err := shim.Pause(aside, rec.ID)
		cancel()
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("pause container %q: %w", rec.Name(), err)
		}
	}
	captured := make([]Captured, 0, len(recs))
	for _, rec := range recs {
		got := Captured{Record: rec, Dir: filepath.Join(work, rec.ID)}
		if err := os.Mkdir(got.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("checkpoint container %q: %w", rec.Name(), err)
		}
		logs := filepath.Join(got.Dir, logsDir)
		if err := shim.Checkpoint(ctx, rec.ID, filepath.Join(got.Dir, StateDir), logs); err != nil {
			return nil, fmt.Errorf("checkpoint container %q: %w", rec.Name(), err)
		}
		if err := s.capture(ctx, got); err != nil {
			return nil, fmt.Errorf("checkpoint container %q: %w", rec.Name(), err)
		}
		captured = append(captured, got)
	}
	return captured, nil
}

// logsDir is CRIU's working folder while it captures.
const logsDir = "work"

// capture writes the files of a paused container's archive beside the state of its processes.
func (s *Service) capture(ctx context.Context, c Captured) error {
	logs := filepath.Join(c.Dir, logsDir)
	for _, name := range []string{DumpLog, StatsFile} {
		if err := os.Rename(filepath.Join(logs, name), filepath.Join(c.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.RemoveAll(logs); err != nil {
		return err
	}
	if err := captureRoot(ctx, c); err != nil {
		return err
	}
	if err := copyLog(c.Record.LogPath, filepath.Join(c.Dir, LogFile)); err != nil {
		return err
	}
	spec, err := s.o.Containers.Spec(c.Record)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.Dir, SpecFile), spec, 0o600); err != nil {
		return err
	}
	pod, err := s.o.Sandboxes.Get(c.Record.SandboxID)
	if err != nil {
		return err
	}
	return WriteJSON(filepath.Join(c.Dir, ConfigFile), Config{
		ID: c.Record.ID, Name: c.Record.Config.Value.GetMetadata().GetName(),
		RootfsImage: c.Record.ImageName, RootfsImageName: c.Record.ImageName, RootfsImageRef: c.Record.ImageRef,
		OCIRuntime: pod.HandlerName, CreatedTime: c.Record.CreatedAt, CheckpointedAt: time.Now(),
	})
}

func captureRoot(ctx context.Context, c Captured) error {
	layers, err := layersOf(c.Record.RootFS)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(c.Dir, RootFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	deleted, err := layers.WriteRoot(ctx, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write changes of the root filesystem: %w", err)
	}
	if len(deleted) == 0 {
		return nil
	}
	return WriteJSON(filepath.Join(c.Dir, DeletedFile), deleted)
}

// layersOf reads from the mounts of a root filesystem where it lies.
func layersOf(mounts []mount.Mount) (Layers, error) {
	var l Layers
	if len(mounts) == 0 {
		return l, fmt.Errorf("it has no root filesystem: %w", errdefs.ErrFailedPrecondition)
	}
	m := mounts[len(mounts)-1]
	if m.Type == "bind" {
		return Layers{Upper: m.Source}, nil
	}
	for _, o := range m.Options {
		if upper, ok := strings.CutPrefix(o, "upperdir="); ok {
			l.Upper = upper
		}
		if lower, ok := strings.CutPrefix(o, "lowerdir="); ok {
			l.Lower = strings.Split(lower, ":")
		}
	}
	if l.Upper == "" {
		return l, fmt.Errorf("its root filesystem is not a writable overlay: %w", errdefs.ErrFailedPrecondition)
	}
	return l, nil
}

// copyLog copies what a container has said, if that is kept.
func copyLog(from, to string) error {
	if from == "" {
		return nil
	}
	in, err := regular.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
