package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/message"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// createRequest is a container to create.
type createRequest struct {
	*message.CreateTaskRequest
	options shim.Options // those of the message, decoded
	streams stdio.Config
	launch  bool // its start follows at once
}

// add creates a container under an id that is reserved meanwhile. Delete ends a creation that is a
// part of a launch.
func (s *Service) add(ctx context.Context, r createRequest) (c *container, err error) {
	var cancel context.CancelFunc
	if r.launch {
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
	}
	if err := s.table.reserve(ctx, r.ID, cancel); err != nil {
		return nil, err
	}
	defer func() { s.table.settle(r.ID, c) }()
	if c, err = s.create(ctx, r); err != nil {
		return nil, err
	}
	if r.launch && c.startMakesInit { // it is not answered before it is started
		return c, nil
	}
	if err := c.own(); err != nil {
		s.takeBack(ctx, c)
		return nil, err
	}
	return c, nil
}

// create makes a container from its bundle: root, record, streams, engine. On error nothing is left
// behind.
func (s *Service) create(ctx context.Context, r createRequest) (_ *container, err error) {
	var u undo
	defer func() {
		if err != nil {
			u.run()
		}
	}()
	u.add(func() { s.dropHandoff(r.ID) })
	if err := s.handoff.Open(r.ID, r.Bundle); err != nil {
		return nil, err
	}
	b, err := s.openBundle(r, &u)
	if err != nil {
		return nil, err
	}
	r.streams.Limits, r.streams.AwaitAttach = b.Facts.LogLimits, b.Facts.AwaitAttach
	engine, err := s.engines.choose(ctx, b)
	if err != nil {
		return nil, err
	}
	record := bundle.Task{
		Engine: engine.Name(), Binary: r.options.Binary, Root: r.options.Root, SystemdCgroup: r.options.SystemdCgroup,
		Cgroup: shim.CgroupPath(b.Spec, r.options.SystemdCgroup),
	}
	if s.handoff != nil { // only a successor needs it
		record.Request = message.Marshal(r.CreateTaskRequest)
	}
	if err := bundle.WriteTask(b.Path, record); err != nil {
		return nil, err
	}
	u.add(func() { s.note(bundle.Forget(b.Path), "forget bundle", b.ID) })
	streams, err := stdio.Open(ctx, r.streams)
	if err != nil {
		return nil, err
	}
	u.add(streams.Close)
	ec, err := build(ctx, engine, b, childIO(streams, r.streams.Terminal), r)
	if err != nil {
		return nil, err
	}
	c := newContainer(b, ec, streams, r, s.handoff)
	if s.options.Containerd { // its answers have no room for a message
		c.message = messageFile(b.Spec)
	}
	if group, err := cgroup.Open(ec.Cgroup()); err == nil {
		c.kills = s.kills.Open(group)
	}
	if err := c.settle(b.Spec, record); err != nil {
		u.add(func() { s.note(c.destroy(), "take back container", b.ID) })
		return nil, err
	}
	u.release()
	return c, nil
}

// build has the engine make a container in the way that suits the request.
func build(ctx context.Context, engine shim.Engine, b *shim.Bundle, io shim.IO, r createRequest) (shim.Container, error) {
	if r.Checkpoint != "" {
		restorer, ok := engine.(shim.Restorer)
		if !ok {
			return nil, fmt.Errorf("restore: engine %s cannot: %w", engine.Name(), errdefs.ErrFailedPrecondition)
		}
		return restorer.Restore(ctx, b, io, r.options, r.Checkpoint)
	}
	launcher, ok := engine.(shim.Launcher)
	// Between the two steps a process is given what its specification does not say.
	said := b.Spec.Process != nil && b.Spec.Process.OOMScoreAdj != nil && shim.CgroupPath(b.Spec, r.options.SystemdCgroup) != ""
	if ok && said && r.launch && b.Facts.OneStep {
		return launcher.Launch(ctx, b, io, r.options)
	}
	return engine.Create(ctx, b, io, r.options)
}

// openBundle reads the bundle and mounts its root.
func (s *Service) openBundle(r createRequest, u *undo) (*shim.Bundle, error) {
	spec, err := bundle.ReadSpec(r.Bundle)
	if err != nil {
		return nil, err
	}
	if err := bundle.MountImages(r.Bundle, bundle.UserNamespace(spec)); err != nil {
		return nil, err
	}
	u.add(func() { s.note(bundle.UnmountImages(r.Bundle), "unmount images", r.ID) })
	if err := bundle.MapVolumes(r.Bundle, spec); err != nil {
		return nil, err
	}
	u.add(func() { s.note(bundle.UnmapVolumes(r.Bundle), "unmap volumes", r.ID) })
	b, err := s.bundle(r, spec)
	if err != nil {
		return nil, err
	}
	if len(r.Rootfs) > 0 {
		b.Rootfs, err = bundle.MountRoot(r.Bundle, r.Rootfs, bundle.UserNamespace(spec))
		if err != nil {
			return nil, err
		}
		u.add(func() { s.note(bundle.UnmountRoot(r.Bundle), "unmount root", r.ID) })
	}
	return b, nil
}

// bundle is what an engine gets of a bundle. The caller sets the root if it is mounted later.
func (s *Service) bundle(r createRequest, spec *specs.Spec) (*shim.Bundle, error) {
	read := annotation.Read
	if s.options.Containerd {
		read = annotation.ReadOfPod
	}
	facts, err := read(spec.Annotations)
	if err != nil {
		return nil, err
	}
	b := &shim.Bundle{
		ID: r.ID, Namespace: s.options.Namespace, Path: r.Bundle, Spec: spec, Facts: facts, Box: s.handoff.Box(r.ID),
	}
	if len(r.Rootfs) == 0 && spec.Root != nil && spec.Root.Path != "" {
		b.Rootfs = spec.Root.Path
		if !filepath.IsAbs(b.Rootfs) {
			b.Rootfs = filepath.Join(r.Bundle, b.Rootfs)
		}
		if _, err := os.Stat(b.Rootfs); errors.Is(err, os.ErrNotExist) {
			b.Rootfs = ""
		}
	}
	return b, nil
}

func childIO(s *stdio.Streams, terminal bool) shim.IO {
	stdin, stdout, stderr, console := s.Child()
	return shim.IO{Stdin: stdin, Stdout: stdout, Stderr: stderr, Console: console, Terminal: terminal}
}

// undo is a stack of steps that undo what failed. They run in reverse order.
type undo []func()

func (u *undo) add(f func()) { *u = append(*u, f) }

// release keeps what was done.
func (u *undo) release() { *u = nil }

func (u *undo) run() {
	for i := len(*u) - 1; i >= 0; i-- {
		(*u)[i]()
	}
}
