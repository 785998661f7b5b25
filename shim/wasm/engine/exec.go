package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/annotation"
	"github.com/sunaba-project/sunaba/shim/wasm/compile"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// Exit codes of what cannot be executed, as a shell gives them.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// further is a process of a container beside its first: another module of the image.
type further struct {
	*process
	spec *specs.Process
}

// Exec implements shim.Container.
func (c *container) Exec(_ context.Context, id string, p *specs.Process, io shim.IO) (shim.Process, error) {
	if p == nil || len(p.Args) == 0 {
		return nil, fmt.Errorf("the command is empty: %w", errdefs.ErrInvalidArgument)
	}
	return &further{process: newProcess(c, io), spec: p}, nil
}

// Start implements shim.Process: the process is created and runs. What cannot be executed becomes a
// process too, which says so and ends with 126 or 127.
func (f *further) Start(ctx context.Context) error {
	c := f.container
	pid := c.init.Pid()
	b, err := furtherBirth(pid)
	if err != nil || !c.init.isThere() { // looked at after opening: the pid was its
		b.close()
		return fmt.Errorf("the container has ended: %w", errdefs.ErrFailedPrecondition)
	}
	defer b.close()
	b.io, b.oom = f.io, c.bundle.Spec.Process.OOMScoreAdj
	b.cgroup, b.frozen = func() (*limited, error) { return c.cgroup, nil }, c.paused.Load()

	outfit, err := f.outfit(ctx, pid)
	if err != nil {
		return err
	}
	defer outfit.close()
	if checked := outfit.checkCode(); checked != nil {
		if _, err = checked(); err != nil {
			return err
		}
	}
	f.mu.Lock()
	if f.started {
		f.mu.Unlock()
		return fmt.Errorf("the command is started already: %w", errdefs.ErrFailedPrecondition)
	}
	f.started = true
	f.mu.Unlock()
	if err := c.admit(f.process); err != nil {
		return err
	}
	n := c.engine.fork(&b)
	if err = n.err; err == nil {
		err = c.engine.settle(n, &b)
	}
	if err != nil {
		c.forget(f.process)
		return errors.Join(err, c.engine.discard(n))
	}
	f.adopt(n.child, n.link, nil)
	f.process.configure(outfit)
	go f.release()
	return nil
}

// Signal implements shim.Process. A guest starts no processes: it is all that there is of this one.
// That its terminal was closed ends it, whether it reads its input or not, as it does any program
// that has no handler.
func (f *further) Signal(ctx context.Context, sig syscall.Signal, _ bool) error {
	err := f.process.Signal(ctx, sig, false)
	if err == nil && sig == unix.SIGHUP && f.spec.Terminal {
		time.AfterFunc(hearing, func() { _ = f.engine.reaper.Signal(f.child, unix.SIGKILL) })
	}
	return err
}

// release lets the guest run as soon as it exists.
func (f *further) release() {
	<-f.ready
	f.tell(link.Message{Kind: link.Start})
}

// outfit finds and compiles the module. A configuration that refuses stands for what cannot be
// executed.
func (f *further) outfit(ctx context.Context, pid int) (*outfit, error) {
	c := f.container
	entry, err := f.entry(ctx, pid)
	var refusal string
	code := uint32(codeNotExecutable)
	switch {
	case errors.Is(err, errdefs.ErrNotFound):
		refusal, code = fmt.Sprintf("exec %s: no such file in the container", f.spec.Args[0]), codeNotFound
	case errors.Is(err, errNotWasm):
		refusal = fmt.Sprintf("exec %s: it is not a WebAssembly module, and this container runs nothing else", f.spec.Args[0])
	case errors.Is(err, errdefs.ErrInvalidArgument):
		refusal = fmt.Sprintf("exec %s: %v", f.spec.Args[0], err)
	case err != nil:
		return nil, err
	}
	if refusal != "" {
		return &outfit{config: link.Config{Refuse: refusal, RefuseCode: code}}, nil
	}
	config, trees, err := processConfig(c.bundle, f.spec, entry, f.io)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	config.Memory = c.limit
	c.mu.Unlock()
	config.Join = joinFD
	config.Further = true
	o := &outfit{config: config}
	return o, o.open(trees)
}

// entry is the compiled module that the command names: of an artifact, which has no files, its
// module; any other below the container's root with all its mounts.
func (f *further) entry(ctx context.Context, pid int) (compile.Entry, error) {
	c := f.container
	name, own := f.spec.Args[0], ownNames(c.bundle.Facts.Module, c.bundle.Spec.Process.Args)
	if slices.Contains(own, name) {
		return c.entry, nil
	}
	// The first process's root is the private one, and the container's lies in it.
	module, err := findModule(path.Join("/proc", strconv.Itoa(pid), "root", "rootfs"), f.spec)
	if errors.Is(err, os.ErrNotExist) && !errors.Is(err, errdefs.ErrNotFound) {
		return compile.Entry{}, fmt.Errorf("look into container: %w: %w", err, errdefs.ErrFailedPrecondition)
	}
	if errors.Is(err, errdefs.ErrNotFound) && slices.Contains(own, path.Base(name)) && path.Dir(path.Join("/", f.spec.Cwd, name)) == "/" {
		return c.entry, nil // as if it lay in the root, with nothing mounted there by its name
	}
	if err != nil {
		return compile.Entry{}, err
	}
	defer module.Close()
	return c.engine.ensure(ctx, fdPath(int(module.Fd())), "", c.engine.steps(c.bundle.Facts.OptimizeGo))
}

// ownNames are what the module of an artifact is called: by the artifact, which may tell its file's
// name, and by its own first argument. An image that has files has none.
func ownNames(m annotation.Module, args []string) (names []string) {
	if m.Path == "" {
		return nil
	}
	if name := m.Name; name != "" {
		names = append(names, name, path.Base(name))
	}
	if len(args) > 0 {
		names = append(names, args[0], path.Base(args[0]))
	}
	return names
}

// admit counts a further process in, unless the container goes.
func (c *container) admit(p *process) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deleted {
		return errDeleted
	}
	c.further[p] = struct{}{}
	return nil
}

// forget takes back admit for a process that never was.
func (c *container) forget(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.further, p)
}
