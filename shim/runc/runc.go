// Package runc is the engine over an OCI runtime binary: runc, crun or another with their command line.
package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/containerd/go-runc"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/cgroup"
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

var _ shim.Engine = (*Engine)(nil)

// New makes the engine. Every process it causes is reaped by r.
func New(options Options, r *reaper.Reaper) *Engine {
	if options.Binary == "" {
		options.Binary = "runc"
	}
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
		PdeathSignal: syscall.SIGKILL, // whoever cleans up after a dead shim must not race with what it began
		Setpgid:      true,            // what it starts can be told from all else, see killTree
	}
	if r.Command == "" {
		r.Command = e.options.Binary
	}
	if r.Root == "" {
		r.Root = e.options.Root
	}
	return r
}

// Create implements shim.Engine.
func (e *Engine) Create(ctx context.Context, b *shim.Bundle, files shim.IO, o shim.Options) (_ shim.Container, err error) {
	c := &container{id: b.ID, dir: b.Path, runtime: e.runtime(b.Path, o), reaper: e.reaper}
	if err := os.MkdirAll(c.runtime.Root, 0o711); c.runtime.Root != "" && err != nil {
		return nil, fmt.Errorf("make runtime root: %w", err)
	}
	console, err := newConsole(b.Path, files.Terminal)
	if err != nil {
		return nil, err
	}
	defer console.close()
	pidFile := filepath.Join(b.Path, bundle.PidName)
	opts := &runc.CreateOpts{PidFile: pidFile, NoPivot: o.NoPivotRoot, NoNewKeyring: o.NoNewKeyring, IO: childIO{files}}
	if files.Terminal {
		opts.ConsoleSocket, opts.IO = console, childIO{}
	}
	defer func() {
		if err != nil && !errdefs.IsAlreadyExists(err) { // somebody else's container of this name stays
			c.undoCreate()
		}
	}()
	_ = os.Remove(pidFile) // of an earlier container in this bundle
	// A runtime that is killed on its way leaves a first process that its delete knows nothing of. So it is let go on when
	// the caller is gone, and what it made is removed then.
	err = c.ask("create container", func() error {
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTime)
		defer cancel()
		return c.runtime.Create(whole, b.ID, b.Path, opts)
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	pid, err := runc.ReadPidFile(pidFile)
	if err != nil {
		return nil, fmt.Errorf("read pid of container %q: %w", b.ID, err)
	}
	c.init = newProcess(c, e.reaper.Watch(pid))
	if c.init.master, err = console.receive(ctx); err != nil {
		return nil, err
	}
	if c.cgroup, err = groupOf(b.Spec, pid, o.SystemdCgroup); err != nil {
		return nil, err
	}
	return c, nil
}

// groupOf is where the runtime put the container.
func groupOf(spec *specs.Spec, pid int, systemd bool) (string, error) {
	if spec.Linux != nil {
		if path := cgroup.Resolve(spec.Linux.CgroupsPath, systemd); path != "" {
			return path, nil
		}
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
	e := &Engine{options: Options{Binary: "runc"}}
	c := &container{id: id, dir: dir, runtime: e.runtime(dir, shim.Options{Binary: t.Binary, Root: t.Root, SystemdCgroup: t.SystemdCgroup})}
	if c.runtime.Root != "" {
		// No state, nothing to ask the runtime for: it may not even be installed any more.
		if _, err := os.Stat(filepath.Join(c.runtime.Root, id)); errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	return c.delete(ctx)
}
