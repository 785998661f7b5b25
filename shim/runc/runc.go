// Package runc is the engine over an OCI runtime binary: runc, crun or another with their command
// line.
package runc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/containerd/go-runc"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/reaper"
)

// logName is the runtime's log in the bundle directory.
const logName = "runtime-log.json"

// Options of the engine: what applies where the caller of the Task API says nothing.
type Options struct {
	Binary string // OCI runtime, "" = runc
	Root   string // the runtime's --root, "" = the runtime's own default
	Debug  bool   // the runtime logs in detail
}

// Engine implements shim.Engine. The reaper's Monitor must be go-runc's.
type Engine struct {
	options Options
	reaper  *reaper.Reaper
}

var (
	_ shim.Engine   = (*Engine)(nil)
	_ shim.Launcher = (*Engine)(nil)
)

// New makes the engine. Every process it causes is reaped by r.
func New(options Options, r *reaper.Reaper) *Engine {
	options.Binary = cmp.Or(options.Binary, "runc")
	return &Engine{options: options, reaper: r}
}

// Name implements shim.Engine.
func (e *Engine) Name() string { return "runc" }

// Handles implements shim.Engine: every bundle with a root filesystem and a program.
func (e *Engine) Handles(ctx context.Context, b *shim.Bundle) (bool, error) {
	return b.Rootfs != "" && b.Spec.Process != nil, nil
}

// runtime is the command line for one bundle.
func (e *Engine) runtime(bundleDir string, o shim.Options) *runc.Runc {
	r := &runc.Runc{
		Command: o.Binary, Root: o.Root, SystemdCgroup: o.SystemdCgroup,
		Log: filepath.Join(bundleDir, logName), LogFormat: runc.JSON, Debug: e.options.Debug,
		PdeathSignal: syscall.SIGKILL, // whoever cleans up after a dead shim must not race with what it started
		Setpgid:      true,            // what it starts can be told from all else, see killTree
	}
	r.Command = cmp.Or(r.Command, e.options.Binary)
	r.Root = cmp.Or(r.Root, e.options.Root)
	return r
}

// Create implements shim.Engine.
func (e *Engine) Create(ctx context.Context, b *shim.Bundle, files shim.IO, o shim.Options) (shim.Container, error) {
	c, err := e.container(b, o)
	if err != nil {
		return nil, err
	}
	f := &first{files: files, noPivot: o.NoPivotRoot, noKeyring: o.NoNewKeyring}
	child, master, err := c.make(ctx, f, func(ctx context.Context, opts *runc.CreateOpts) error {
		return c.runtime.Create(ctx, c.id, c.dir, opts)
	})
	if err != nil {
		return nil, err
	}
	c.init = newProcess(c, child)
	c.init.master = master
	if c.cgroup, err = groupOf(b.Spec, child.Pid, o.SystemdCgroup); err != nil {
		c.undoCreate()
		return nil, err
	}
	return c, nil
}

func (e *Engine) container(b *shim.Bundle, o shim.Options) (*container, error) {
	c := &container{id: b.ID, dir: b.Path, runtime: e.runtime(b.Path, o), reaper: e.reaper, path: searchPath(b.Spec)}
	if err := os.MkdirAll(c.runtime.Root, 0o711); c.runtime.Root != "" && err != nil {
		return nil, fmt.Errorf("make runtime root: %w", err)
	}
	return c, nil
}

// searchPath is the PATH of a container.
func searchPath(spec *specs.Spec) (path string) {
	if spec == nil || spec.Process == nil {
		return ""
	}
	for _, v := range spec.Process.Env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			path = value
		}
	}
	return path
}

// first is what a container's first process is made with.
type first struct {
	files              shim.IO
	noPivot, noKeyring bool
}

// make has the runtime make the container and its first process, and hands that to the reaper.
func (c *container) make(ctx context.Context, f *first, run func(context.Context, *runc.CreateOpts) error) (child *reaper.Child, master *os.File, err error) {
	console, err := newConsole(c.dir, f.files.Terminal)
	if err != nil {
		return nil, nil, err
	}
	defer console.close()
	pidFile := filepath.Join(c.dir, bundle.PidName)
	opts := &runc.CreateOpts{PidFile: pidFile, NoPivot: f.noPivot, NoNewKeyring: f.noKeyring, IO: childIO{files: f.files}}
	if f.files.Terminal {
		opts.ConsoleSocket, opts.IO = console, childIO{}
	}
	defer func() {
		if c.foreign = errdefs.IsAlreadyExists(err); err != nil && !c.foreign {
			c.undoCreate()
		}
	}()
	_ = os.Remove(pidFile) // of an earlier container in this bundle
	// A runtime that is killed on its way leaves a first process that its delete knows nothing of.
	// So it finishes also when the caller has left, and what it made is removed then.
	err = c.ask(func() error {
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTime)
		defer cancel()
		return run(whole, opts)
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, err
	}
	pid, err := runc.ReadPidFile(pidFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read pid of container %q: %w", c.id, err)
	}
	child = c.reaper.Watch(pid)
	if master, err = console.receive(ctx); err != nil {
		return nil, nil, err
	}
	return child, master, nil
}

// unborn makes a container whose first process its Start makes. Its cgroup is known before.
func (e *Engine) unborn(b *shim.Bundle, o shim.Options) (*container, error) {
	c, err := e.container(b, o)
	if err != nil {
		return nil, err
	}
	if c.cgroup = shim.CgroupPath(b.Spec, o.SystemdCgroup); c.cgroup == "" {
		return nil, fmt.Errorf("the container needs a cgroup path: %w", errdefs.ErrInvalidArgument)
	}
	c.init = newProcess(c, nil)
	return c, nil
}

// Launch implements shim.Launcher: one program instead of two.
func (e *Engine) Launch(_ context.Context, b *shim.Bundle, files shim.IO, o shim.Options) (shim.Container, error) {
	c, err := e.unborn(b, o)
	if err != nil {
		return nil, err
	}
	c.init.launch = &first{files: files, noPivot: o.NoPivotRoot, noKeyring: o.NoNewKeyring}
	return c, nil
}

// startLaunched lets the runtime make the container, which runs then.
func (p *process) startLaunched(ctx context.Context) error {
	c := p.container
	child, master, err := c.make(ctx, p.launch, func(ctx context.Context, opts *runc.CreateOpts) error {
		opts.Detach = true
		_, err := c.runtime.Run(ctx, c.id, c.dir, opts)
		return err
	})
	if err != nil {
		return err
	}
	p.launch, p.master = nil, master
	p.watch(child)
	return nil
}

// groupOf is where the runtime put the container.
func groupOf(spec *specs.Spec, pid int, systemd bool) (string, error) {
	if path := shim.CgroupPath(spec, systemd); path != "" {
		return path, nil
	}
	path, err := cgroup.Of(pid)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil // ended already
	}
	return path, err
}

// Delete removes what the runtime keeps of a container whose shim is dead, and kills it if it runs.
// It is idempotent.
func Delete(ctx context.Context, dir, id string, t bundle.Task) error {
	if err := deleteState(ctx, dir, id, t); err != nil {
		return err
	}
	// The runtime writes the pid beside its file first, and may have been killed at that.
	return durable.Remove(dir, logName, "."+bundle.PidName)
}

func deleteState(ctx context.Context, dir, id string, t bundle.Task) error {
	e := &Engine{options: Options{Binary: "runc"}}
	c := &container{id: id, dir: dir, runtime: e.runtime(dir, shim.Options{Binary: t.Binary, Root: t.Root, SystemdCgroup: t.SystemdCgroup})}
	if c.runtime.Root != "" {
		// No state, nothing to ask the runtime for: it may not even be installed any more.
		if _, err := os.Stat(filepath.Join(c.runtime.Root, id)); errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	if spec, err := bundle.ReadSpec(dir); err == nil {
		c.cgroup = shim.CgroupPath(spec, t.SystemdCgroup)
	}
	c.init = newProcess(c, nil)
	if hasEnded(dir) {
		close(c.init.exited)
	}
	return c.delete(ctx)
}

// hasEnded says whether the init process of a dead shim's container is known to have exited.
func hasEnded(dir string) bool {
	if _, ok := bundle.ReadExit(dir); ok {
		return true
	}
	pid := bundle.ReadPid(dir)
	return pid != 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
