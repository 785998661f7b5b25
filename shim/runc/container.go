package runc

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/go-runc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/bundle"
	"github.com/sunaba-project/sunaba/shim/reaper"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// undoTime is how long taking a half-made container back may take; the caller's own time may be
// over.
const undoTime = 10 * time.Second

// createTime is how long a runtime may take to create a container, whose caller may be gone.
const createTime = 2 * time.Minute

// container is an OCI container.
type container struct {
	id      string
	dir     string // bundle
	runtime *runc.Runc
	reaper  *reaper.Reaper
	cgroup  string
	path    string // where names of programs are looked for; "" = not known
	init    *process
	foreign bool       // what the runtime has under this name is somebody else's
	adopted bool       // from a shim that has died
	dumping sync.Mutex // held while CRIU writes the container's state
}

var _ shim.Container = (*container)(nil)

// undoCreate removes what a create that failed may have left.
func (c *container) undoCreate() {
	ctx, cancel := context.WithTimeout(context.Background(), undoTime)
	defer cancel()
	_ = c.runtime.Delete(ctx, c.id, &runc.DeleteOpts{Force: true}) // says no more than that there is nothing, mostly
	_ = durable.Remove(c.dir, logName, bundle.PidName, "."+bundle.PidName)
}

func (c *container) Init() shim.Process { return c.init }

// Exec implements shim.Container; the runtime makes the process at its Start.
func (c *container) Exec(ctx context.Context, id string, p *specs.Process, files shim.IO) (shim.Process, error) {
	e := newProcess(c, nil)
	e.exec = &execution{id: id, spec: *p, io: files}
	return e, nil
}

func (c *container) group() (*cgroup.Group, error) { return cgroup.Open(c.cgroup) }

// Pids reads the cgroup: a runtime's ps does the same, at the price of a program.
func (c *container) Pids(ctx context.Context) ([]int, error) {
	g, err := c.group()
	if err != nil {
		return nil, err
	}
	return g.Pids()
}

func (c *container) Pause(ctx context.Context) error {
	return c.ask(func() error { return c.runtime.Pause(ctx, c.id) })
}

// Resume implements shim.Container. It waits for the end of a checkpoint, longer than its caller if
// need be.
func (c *container) Resume(ctx context.Context) error {
	c.dumping.Lock()
	defer c.dumping.Unlock()
	if c.adopted { // with a CRIU, perhaps, which the supervisor has got
		awaitCRIU(os.Getppid(), isCRIU)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), criuTime)
	defer cancel()
	return c.ask(func() error { return c.runtime.Resume(ctx, c.id) })
}

func (c *container) Update(ctx context.Context, r *specs.LinuxResources) error {
	return c.ask(func() error { return c.runtime.Update(ctx, c.id, r) })
}

func (c *container) Cgroup() string { return c.cgroup }

func (c *container) Details() shim.Details { return shim.Details{PID: c.init.Pid()} }

// Delete implements shim.Container: the runtime runs its hooks and removes its state and the
// cgroup.
func (c *container) Delete(ctx context.Context) error {
	if c.foreign {
		return nil
	}
	// runc forgets a container whose cgroup was busy for longer than it waits, and leaves that.
	if err := errors.Join(c.delete(ctx), c.inGroup((*cgroup.Group).RemoveEmpty)); err != nil {
		return err
	}
	return durable.Remove(c.dir, logName, bundle.PidName, "."+bundle.PidName) // beside its file the runtime writes the pid first
}

// delete removes what the runtime keeps. What has exited is deleted plainly: since version 1.2 runc
// waits 100 ms after the kill of a forced delete, also where there was nothing to kill. What the
// runtime does not take for exited is forced.
func (c *container) delete(ctx context.Context) error {
	// What has outlived init, which it can without a PID namespace of its own, is killed before: a
	// plain delete kills that too, but does not wait for its end, and leaves the cgroup then.
	if c.init.hasExited() && c.inGroup(func(g *cgroup.Group) error { return g.Kill(ctx) }) == nil {
		if err := c.remove(ctx, false); err == nil {
			return nil
		}
	}
	return c.remove(ctx, true)
}

// inGroup does something to the container's cgroup, if it has one.
func (c *container) inGroup(do func(*cgroup.Group) error) error {
	if c.cgroup == "" {
		return nil
	}
	group, err := c.group()
	if err != nil {
		return err
	}
	return do(group)
}

func (c *container) remove(ctx context.Context, force bool) error {
	err := c.ask(func() error {
		return c.runtime.Delete(ctx, c.id, &runc.DeleteOpts{Force: force})
	})
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// process is init, or one that the runtime executes in the container.
type process struct {
	container *container
	exec      *execution   // nil for init
	restore   *restoration // of an init that comes from a checkpoint
	launch    *first       // of an init that is made and let run in one step, until then
	child     *reaper.Child
	master    *os.File // pty the runtime opened inside the container
	exited    chan struct{}
	exit      shim.Exit
}

var (
	_ shim.Process       = (*process)(nil)
	_ shim.ConsoleHolder = (*process)(nil)
)

// execution is what a further process will be started with.
type execution struct {
	id   string
	spec specs.Process
	io   shim.IO
}

func newProcess(c *container, child *reaper.Child) *process {
	p := &process{container: c, exited: make(chan struct{})}
	if child != nil {
		p.watch(child)
	}
	return p
}

func (p *process) watch(child *reaper.Child) {
	p.child = child
	go func() {
		<-child.Done
		code, at := child.Status()
		p.exit = shim.Exit{Code: uint32(code), At: at}
		close(p.exited)
	}()
}

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *process) Pid() int {
	if p.child == nil {
		return 0
	}
	return p.child.Pid
}

func (p *process) Start(ctx context.Context) error {
	c := p.container
	switch {
	case p.restore != nil:
		return p.startRestored(ctx)
	case p.launch != nil:
		return p.startLaunched(ctx)
	}
	if p.exec == nil {
		return c.ask(func() error { return c.runtime.Start(ctx, c.id) })
	}
	console, err := newConsole(c.dir, p.exec.io.Terminal)
	if err != nil {
		return err
	}
	defer console.close()
	name := fnv.New64a()
	name.Write([]byte(p.exec.id))
	path := filepath.Join(c.dir, fmt.Sprintf("exec-%x", name.Sum64()))
	pidFile, log := path+".pid", path+".json"
	defer os.Remove(pidFile)
	defer os.Remove(log)
	opts := &runc.ExecOpts{PidFile: pidFile, LogFile: log, Detach: true, IO: childIO{files: p.exec.io}}
	if p.exec.io.Terminal {
		opts.ConsoleSocket, opts.IO = console, childIO{}
	}
	err = c.askWith(log, func() error { return c.runtime.Exec(ctx, c.id, p.exec.spec, opts) })
	if err != nil {
		return err
	}
	pid, err := runc.ReadPidFile(pidFile)
	if err != nil {
		return fmt.Errorf("read pid of process %q: %w", p.exec.id, err)
	}
	child := c.reaper.Watch(pid)
	if p.master, err = console.receive(ctx); err != nil {
		_ = c.reaper.Signal(child, unix.SIGKILL)
		return err
	}
	p.watch(child)
	return nil
}

// Signal signals the process itself: its pid is our child's until we reap it. A program would do no
// more and take ten milliseconds. A further process is killed with all that it started, if all is
// set.
func (p *process) Signal(ctx context.Context, sig syscall.Signal, all bool) error {
	killed := false
	if all && p.exec != nil && sig == unix.SIGKILL {
		if g, err := p.container.group(); err == nil {
			if err := killTree(ctx, g, p.Pid()); err != nil {
				return fmt.Errorf("kill process %q with all that it started: %w", p.exec.id, err)
			}
			killed = true
		}
	}
	if !all || p.exec != nil {
		err := p.container.reaper.Signal(p.child, sig)
		switch {
		case errors.Is(err, os.ErrProcessDone) && killed:
			return nil // by that
		case errors.Is(err, os.ErrProcessDone):
			return fmt.Errorf("process %d has ended: %w", p.child.Pid, errdefs.ErrNotFound)
		}
		return err
	}
	g, err := p.container.group()
	if err != nil {
		return err
	}
	n, err := g.Signal(sig)
	if err == nil && n == 0 {
		return fmt.Errorf("container %q has no process: %w", p.container.id, errdefs.ErrNotFound)
	}
	return err
}

func (p *process) Exited() <-chan struct{} { return p.exited }

func (p *process) Exit() shim.Exit { return p.exit }

// Console implements shim.ConsoleHolder.
func (p *process) Console() *os.File { return p.master }

// Resize implements shim.Process. The terminal of a further process has its size from its start on.
func (p *process) Resize(width, height uint16) error {
	switch {
	case p.master == nil && p.exec != nil:
		p.exec.spec.ConsoleSize = &specs.Box{Width: uint(width), Height: uint(height)}
		return nil
	case p.master == nil:
		return fmt.Errorf("process has no terminal yet: %w", errdefs.ErrFailedPrecondition)
	}
	return stdio.Resize(p.master, width, height)
}

func (p *process) CloseStdin() error { return nil }

// childIO hands the shim's files to the runtime, which hands them to the container. It is go-runc's
// IO.
type childIO struct {
	runc.IO // nil: go-runc calls nothing but Set
	files   shim.IO
}

// Set implements runc.IO.
func (c childIO) Set(cmd *exec.Cmd) {
	// A nil *os.File in an interface is not nil.
	if c.files.Stdin != nil {
		cmd.Stdin = c.files.Stdin
	}
	if c.files.Stdout != nil {
		cmd.Stdout = c.files.Stdout
	}
	if c.files.Stderr != nil {
		cmd.Stderr = c.files.Stderr
	}
}
