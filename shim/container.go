package shim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/shared/handoff"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// killTime is how long what a container left running may take to die.
const killTime = 10 * time.Second

// container is a created container with its processes. It does not keep the bundle's
// specification, which is large.
type container struct {
	id      string
	path    string // bundle
	ownPids bool   // it has a PID namespace of its own, which dies with its init
	engine  Container
	init    *process
	unborn  bool             // init exists from its start on, not before: it is made from a checkpoint, or launched
	oomTold bool             // an event told of a kill for lack of memory; under init's lock
	kills   *cgroup.Kills    // for lack of memory, until init has ended; nil = it has no group
	handoff *handoff.Handoff // nil without a supervisor

	mu    sync.Mutex
	execs map[string]*process
}

// createRequest is a container to create, translated from the Task API.
type createRequest struct {
	id, bundle string
	rootfs     []bundle.Mount
	options    Options
	streams    stdio.Config
	checkpoint string // folder of the state to begin with, "" = none
	wire       *task.CreateTaskRequest
	launch     bool // its start follows at once
}

// create makes a container from its bundle: root, record, streams, engine. On error nothing is left behind.
func (s *Service) create(ctx context.Context, r createRequest) (_ *container, err error) {
	var u undo
	defer func() {
		if err != nil {
			u.run()
		}
	}()
	u.add(func() { s.dropHandoff(r.id) })
	if err := s.handoff.Open(r.id, r.bundle); err != nil {
		return nil, err
	}
	b, err := s.openBundle(r, &u)
	if err != nil {
		return nil, err
	}
	if r.streams.Limits, err = stdio.ParseLimits(b.Spec.Annotations[AnnotationLogLimits]); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", AnnotationLogLimits, err)
	}
	engine, err := s.choose(ctx, b)
	if err != nil {
		return nil, err
	}
	if _, ok := engine.(Preparer); !ok {
		if b.Spec.Linux != nil {
			s.vacate(b.Spec.Linux.CgroupsPath)
		}
	}
	record := bundle.Task{
		Engine: engine.Name(), Binary: r.options.Binary, Root: r.options.Root, SystemdCgroup: r.options.SystemdCgroup,
		Cgroup: cgroupPath(b.Spec, r.options.SystemdCgroup),
	}
	if err := s.remember(&record, r); err != nil {
		return nil, err
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
	c := s.made(b, ec, streams, r)
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

// made is a container that an engine has made.
func (s *Service) made(b *Bundle, ec Container, streams *stdio.Streams, r createRequest) *container {
	c := &container{id: b.ID, path: b.Path, ownPids: ownPids(b.Spec), engine: ec, execs: make(map[string]*process), handoff: s.handoff}
	c.init = newProcess("", ec.Init(), streams, r.streams)
	c.unborn = c.init.pid() == 0
	return c
}

// settle is what has to be done once the engine has made the container.
func (c *container) settle(spec *specs.Spec, t bundle.Task) error {
	if c.unborn {
		return c.keepStreams(true)
	}
	c.init.connect()
	if err := c.keepStreams(true); err != nil {
		return err
	}
	return c.record(spec, t)
}

// build has the engine make a container in the way that suits the request.
func build(ctx context.Context, engine Engine, b *Bundle, io IO, r createRequest) (Container, error) {
	if r.checkpoint != "" {
		return restore(ctx, engine, b, io, r)
	}
	launcher, ok := engine.(Launcher)
	// Between the two steps a process is given what its specification does not say.
	said := b.Spec.Process != nil && b.Spec.Process.OOMScoreAdj != nil && cgroupPath(b.Spec, r.options.SystemdCgroup) != ""
	if ok && said && r.launch && b.Spec.Annotations[AnnotationOneStep] == "true" {
		return launcher.Launch(ctx, b, io, r.options)
	}
	return engine.Create(ctx, b, io, r.options)
}

// openBundle reads the bundle and mounts its root.
func (s *Service) openBundle(r createRequest, u *undo) (*Bundle, error) {
	spec, err := bundle.ReadSpec(r.bundle)
	if err != nil {
		return nil, err
	}
	if err := bundle.MountImages(r.bundle, bundle.UserNamespace(spec)); err != nil {
		return nil, err
	}
	u.add(func() { s.note(bundle.UnmountImages(r.bundle), "unmount images", r.id) })
	if err := bundle.MapVolumes(r.bundle, spec); err != nil {
		return nil, err
	}
	u.add(func() { s.note(bundle.UnmapVolumes(r.bundle), "unmap volumes", r.id) })
	b := s.bundle(r, spec)
	if len(r.rootfs) > 0 {
		b.Rootfs, err = bundle.MountRoot(r.bundle, r.rootfs, bundle.UserNamespace(spec))
		if err != nil {
			return nil, err
		}
		u.add(func() { s.note(bundle.UnmountRoot(r.bundle), "unmount root", r.id) })
	}
	return b, nil
}

// bundle is what an engine gets of a bundle. A root that is yet to be mounted is for the caller to add.
func (s *Service) bundle(r createRequest, spec *specs.Spec) *Bundle {
	b := &Bundle{
		ID: r.id, Namespace: s.options.Namespace, SandboxID: spec.Annotations[AnnotationSandboxID], Path: r.bundle, Spec: spec,
		Box: s.handoff.Box(r.id),
	}
	if b.SandboxID == "" {
		b.SandboxID = r.id
	}
	if len(r.rootfs) == 0 && spec.Root != nil && spec.Root.Path != "" {
		b.Rootfs = spec.Root.Path
		if !filepath.IsAbs(b.Rootfs) {
			b.Rootfs = filepath.Join(r.bundle, b.Rootfs)
		}
		if _, err := os.Stat(b.Rootfs); errors.Is(err, os.ErrNotExist) {
			b.Rootfs = ""
		}
	}
	return b
}

// choose asks the engines in order who runs the bundle.
func (s *Service) choose(ctx context.Context, b *Bundle) (Engine, error) {
	for _, e := range s.options.Engines {
		handles, err := e.Handles(ctx, b)
		if err != nil {
			return nil, err
		}
		if !handles {
			continue
		}
		if e.Name() == HandlerTypeWasm && b.Spec.Annotations[AnnotationHandlerType] == HandlerTypeOCI {
			return nil, fmt.Errorf("container %q is a WebAssembly module and its pod's handler runs Linux containers: "+
				"use a RuntimeClass whose handler has type wasm: %w", b.ID, errdefs.ErrFailedPrecondition)
		}
		return e, nil
	}
	return nil, fmt.Errorf("bundle %q: no engine runs it: %w", b.Path, errdefs.ErrFailedPrecondition)
}

func cgroupPath(spec *specs.Spec, systemd bool) string {
	if spec.Linux == nil {
		return ""
	}
	return cgroup.Path(spec.Linux.CgroupsPath, systemd)
}

func childIO(s *stdio.Streams, terminal bool) IO {
	stdin, stdout, stderr, console := s.Child()
	return IO{Stdin: stdin, Stdout: stdout, Stderr: stderr, Console: console, Terminal: terminal}
}

// record writes what cleaning up after a dead shim needs, and undoes what init inherited from the shim.
func (c *container) record(spec *specs.Spec, t bundle.Task) error {
	pid := c.init.engine.Pid()
	if spec.Process != nil && spec.Process.OOMScoreAdj == nil {
		// The shim is the last that memory shortage should hit; its containers are not.
		_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte("0"), 0)
	}
	if path := c.engine.Cgroup(); path != t.Cgroup {
		t.Cgroup = path
		if err := bundle.WriteTask(c.path, t); err != nil {
			return err
		}
	}
	return bundle.WritePid(c.path, pid)
}

// destroy ends a container whatever it does, and releases it.
func (c *container) destroy() error {
	if c.kills != nil {
		defer c.kills.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	if err := c.init.engine.Signal(ctx, syscall.SIGKILL, false); err == nil {
		select {
		case <-c.init.engine.Exited():
		case <-ctx.Done():
		}
	}
	return c.engine.Delete(ctx)
}

func ownPids(spec *specs.Spec) bool {
	if spec.Linux == nil {
		return false
	}
	for _, ns := range spec.Linux.Namespaces {
		if ns.Type == specs.PIDNamespace {
			return ns.Path == ""
		}
	}
	return false
}

// lastRites finds out how init ended, after making sure that nothing of the container runs on.
func (s *Service) lastRites(c *container) Exit {
	exit := c.init.engine.Exit()
	if c.kills != nil && c.kills.Close() && exit.Code != 0 {
		exit.OOMKilled = true
	}
	group, err := cgroup.Open(c.engine.Cgroup())
	if err == nil && !c.ownPids {
		ctx, cancel := context.WithTimeout(context.Background(), killTime)
		s.note(group.Kill(ctx), "kill what init left", c.id)
		cancel()
	}
	c.init.drain(drainTime)
	return exit
}

// release gives back everything of a container that has ended. It may be called again after an error.
func (c *container) release(ctx context.Context) error {
	if err := c.engine.Delete(ctx); err != nil {
		return err
	}
	c.init.streams.Close()
	c.mu.Lock()
	for id, p := range c.execs {
		if p != nil { // nil is a name somebody is about to take; the engine will refuse
			p.streams.Close()
			delete(c.execs, id)
		}
	}
	c.mu.Unlock()
	if err := errors.Join(bundle.UnmountRoot(c.path), bundle.UnmapVolumes(c.path), bundle.UnmountImages(c.path)); err != nil {
		return err
	}
	return bundle.Forget(c.path)
}

// process finds a process, "" = init.
func (c *container) process(execID string) (*process, error) {
	if execID == "" {
		return c.init, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.execs[execID]
	if !ok || p == nil {
		return nil, fmt.Errorf("process %q of container %q: %w", execID, c.id, errdefs.ErrNotFound)
	}
	return p, nil
}

// further lists the ids of processes beside init that were not forgotten.
func (c *container) further() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.execs))
}

// exec prepares a further process.
func (c *container) exec(ctx context.Context, id string, spec *specs.Process, names stdio.Config) (err error) {
	c.mu.Lock()
	if _, taken := c.execs[id]; taken {
		c.mu.Unlock()
		return fmt.Errorf("process %q of container %q: %w", id, c.id, errdefs.ErrAlreadyExists)
	}
	c.execs[id] = nil // reserved
	c.mu.Unlock()
	var p *process
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			delete(c.execs, id)
		} else {
			c.execs[id] = p
		}
	}()
	if st, _ := c.init.snapshot(); st != running {
		return fmt.Errorf("container %q is %s: %w", c.id, st, errdefs.ErrFailedPrecondition)
	}
	streams, err := stdio.Open(ctx, names)
	if err != nil {
		return err
	}
	ep, err := c.engine.Exec(ctx, id, spec, childIO(streams, names.Terminal))
	if err != nil {
		streams.Close()
		return err
	}
	p = newProcess(id, ep, streams, names)
	return nil
}

// waitExecs waits until the ends of all started processes beside init have been announced, but not for ever.
func (c *container) waitExecs(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, p := range c.startedExecs() {
		select {
		case <-p.finished:
		case <-timer.C:
			return
		}
	}
}

// startedExecs lists the executed processes that were started.
func (c *container) startedExecs() []*process {
	c.mu.Lock()
	execs := slices.Collect(maps.Values(c.execs))
	c.mu.Unlock() // a process's lock comes before its container's
	return slices.DeleteFunc(execs, func(p *process) bool { return p == nil || p.pid() == 0 })
}

// forget removes an executed process that has ended or never started.
func (c *container) forget(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.execs[p.id] == p {
		delete(c.execs, p.id)
	}
}
