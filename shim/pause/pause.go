// Package pause is the engine of sandboxes: a process that holds a pod's shared PID namespace and
// reaps what is orphaned in it.
package pause

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/thread"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/reaper"
)

// Engine runs a sandbox bundle that has no root filesystem, with a process of the shim's own
// binary.
type Engine struct {
	self   string
	reaper *reaper.Reaper
}

// New makes the engine. self is the binary with the pause face, "" = this process's own.
func New(self string, r *reaper.Reaper) *Engine {
	self = cmp.Or(self, "/proc/self/exe")
	return &Engine{self: self, reaper: r}
}

// Name implements shim.Engine.
func (e *Engine) Name() string { return shim.PauseName }

// Handles implements shim.Engine: a sandbox without a root.
func (e *Engine) Handles(ctx context.Context, b *shim.Bundle) (bool, error) {
	return b.Facts.Sandbox && b.Rootfs == "", nil
}

// Create implements shim.Engine. The process exists in its namespaces and cgroup; it is the user's
// program already, because no program is executed: Start has nothing to add.
func (e *Engine) Create(ctx context.Context, b *shim.Bundle, io shim.IO, o shim.Options) (shim.Container, error) {
	path := shim.CgroupPath(b.Spec, o.SystemdCgroup)
	var group *cgroup.Group
	if path != "" {
		var err error
		if group, err = cgroup.Open(path); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(e.self, "pause")
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = io.Stdin, io.Stdout, io.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	join, user, err := namespaces(b.Spec, cmd.SysProcAttr)
	if err != nil {
		return nil, err
	}
	// By its descriptor 3 the process learns that it is in its cgroup, and then, however that
	// happens, that the shim has exited.
	lifeline, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer lifeline.Close()
	cmd.ExtraFiles = []*os.File{lifeline}
	child, err := e.startIn(cmd, join, user)
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("start pause process: %w", err)
	}
	c := &container{reaper: e.reaper, child: child, group: group, lifeline: ours, exited: make(chan struct{})}
	err = b.Box.Keep(boxLifeline, nil, ours)
	if group != nil {
		err = errors.Join(err, group.Create(), group.Join(child.Pid))
	}
	if err == nil {
		_, err = ours.Write([]byte{letGo})
	}
	if err != nil {
		_ = e.reaper.Signal(child, unix.SIGKILL)
		<-child.Done
		ours.Close()
		_ = c.Delete(ctx)
		return nil, err
	}
	go c.watch()
	return c, nil
}

// boxLifeline is where the box has the end of the lifeline: the process ends with the shim and all
// who might take over.
const boxLifeline = "lifeline"

// Adopt implements shim.Adopter.
func (e *Engine) Adopt(_ context.Context, b *shim.Bundle, a shim.Adoption) (shim.Container, error) {
	c := &container{reaper: e.reaper, exited: make(chan struct{})}
	if a.Task.Cgroup != "" {
		var err error
		if c.group, err = cgroup.Open(a.Task.Cgroup); err != nil {
			return nil, err
		}
	}
	if lifeline := a.Kept[boxLifeline]; len(lifeline.Files) == 1 {
		c.lifeline = lifeline.Files[0]
	}
	if a.Exit != nil {
		c.child, c.exit = &reaper.Child{Pid: a.PID}, *a.Exit
		c.lifeline.Close()
		close(c.exited)
		return c, nil
	}
	var err error
	if c.child, err = e.reaper.Adopt(a.PID); err != nil {
		return nil, err
	}
	go c.watch()
	return c, nil
}

// namespaceFlags are the kinds a pause process may join or be given.
var namespaceFlags = map[specs.LinuxNamespaceType]int{
	specs.PIDNamespace:     unix.CLONE_NEWPID,
	specs.NetworkNamespace: unix.CLONE_NEWNET,
	specs.IPCNamespace:     unix.CLONE_NEWIPC,
	specs.UTSNamespace:     unix.CLONE_NEWUTS,
	specs.MountNamespace:   unix.CLONE_NEWNS,
	specs.CgroupNamespace:  unix.CLONE_NEWCGROUP,
}

// joined is a namespace to enter before the fork.
type joined struct {
	flag int
	path string
}

// namespaces says which namespaces the child gets and which it joins; user is the path of a user
// namespace among these.
func namespaces(spec *specs.Spec, attr *syscall.SysProcAttr) (join []joined, user string, err error) {
	if spec.Linux == nil {
		return nil, "", nil
	}
	for _, ns := range spec.Linux.Namespaces {
		flag, ok := namespaceFlags[ns.Type]
		switch {
		case ns.Type == specs.UserNamespace && ns.Path != "":
			user = ns.Path
		case !ok:
			return nil, "", fmt.Errorf("pause process in a namespace of type %q: %w", ns.Type, errdefs.ErrNotImplemented)
		case ns.Path == "":
			attr.Cloneflags |= uintptr(flag)
		case flag == unix.CLONE_NEWNS || flag == unix.CLONE_NEWCGROUP:
			return nil, "", fmt.Errorf("pause process cannot join a namespace of type %q: %w", ns.Type, errdefs.ErrNotImplemented)
		default:
			join = append(join, joined{flag, ns.Path})
		}
	}
	return join, user, nil
}

// startIn forks from a thread that has entered the namespaces, and ends.
func (e *Engine) startIn(cmd *exec.Cmd, join []joined, user string) (child *reaper.Child, err error) {
	thread.Run(func() {
		if err = enter(join); err == nil {
			child, err = e.start(cmd, user)
		}
	})
	return child, err
}

func (e *Engine) start(cmd *exec.Cmd, user string) (*reaper.Child, error) {
	if user != "" {
		return startInUser(e.reaper, cmd, user)
	}
	child, err := e.reaper.Start(cmd)
	if err == nil {
		_ = cmd.Process.Release()
	}
	return child, err
}

// enter moves the calling thread.
func enter(join []joined) error {
	for _, j := range join {
		there, err := unix.Open(j.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open namespace %q: %w", j.path, err)
		}
		err = unix.Setns(there, j.flag)
		unix.Close(there)
		if err != nil {
			return fmt.Errorf("join namespace %q: %w", j.path, err)
		}
	}
	return nil
}

// container is a pause process as Container and Process.
type container struct {
	reaper   *reaper.Reaper
	child    *reaper.Child
	group    *cgroup.Group // nil = where the shim is
	lifeline *os.File      // open as long as the shim lives
	exited   chan struct{}
	exit     shim.Exit
}

func (c *container) watch() {
	<-c.child.Done
	code, at := c.child.Status()
	c.exit = shim.Exit{Code: uint32(code), At: at}
	c.lifeline.Close()
	close(c.exited)
}

func (c *container) Init() shim.Process { return c }

func (c *container) Exec(ctx context.Context, id string, p *specs.Process, io shim.IO) (shim.Process, error) {
	return nil, fmt.Errorf("a pause process has no file system to execute %q from: %w", id, errdefs.ErrNotImplemented)
}

func (c *container) Pids(ctx context.Context) ([]int, error) {
	select {
	case <-c.exited:
		return nil, nil
	default:
		return []int{c.child.Pid}, nil
	}
}

func (c *container) Pause(ctx context.Context) error {
	return fmt.Errorf("a pause process is not paused: %w", errdefs.ErrNotImplemented)
}

func (c *container) Resume(ctx context.Context) error { return c.Pause(ctx) }

// Update has nothing to change: the pod's limits are its parent's.
func (c *container) Update(ctx context.Context, r *specs.LinuxResources) error { return nil }

func (c *container) Cgroup() string {
	if c.group == nil {
		return ""
	}
	return c.group.Path()
}

func (c *container) Details() shim.Details { return shim.Details{PID: c.child.Pid} }

// Delete leaves a cgroup that others (the shim) are in.
func (c *container) Delete(ctx context.Context) error {
	if c.group == nil {
		return nil
	}
	return c.group.RemoveEmpty()
}

func (c *container) Pid() int { return c.child.Pid }

func (c *container) Start(ctx context.Context) error { return nil }

func (c *container) Signal(ctx context.Context, sig syscall.Signal, all bool) error {
	err := c.reaper.Signal(c.child, sig)
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("pause process has ended: %w", errdefs.ErrNotFound)
	}
	return err
}

func (c *container) Exited() <-chan struct{} { return c.exited }

func (c *container) Exit() shim.Exit { return c.exit }

func (c *container) Resize(width, height uint16) error {
	return fmt.Errorf("a pause process has no terminal: %w", errdefs.ErrFailedPrecondition)
}

func (c *container) CloseStdin() error { return nil }
