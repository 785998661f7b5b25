package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/shim/reaper"
)

// PauseEngine runs a sandbox bundle that has no root filesystem: a process of the shim's own
// binary that holds the pod's shared PID namespace and reaps what is orphaned in it.
type PauseEngine struct {
	self   string
	reaper *reaper.Reaper
}

// NewPauseEngine makes the engine. self is the binary with the pause face, "" = this process's own.
func NewPauseEngine(self string, r *reaper.Reaper) *PauseEngine {
	if self == "" {
		self = "/proc/self/exe"
	}
	return &PauseEngine{self: self, reaper: r}
}

// Name implements Engine.
func (e *PauseEngine) Name() string { return pauseName }

const pauseName = "pause"

// Handles implements Engine: a sandbox without a root.
func (e *PauseEngine) Handles(ctx context.Context, b *Bundle) (bool, error) {
	return b.Spec.Annotations[AnnotationContainerType] == ContainerTypeSandbox && b.Rootfs == "", nil
}

// Create implements Engine. The process exists in its namespaces and cgroup; it is the user's
// program already, because there is none: Start has nothing to add.
func (e *PauseEngine) Create(ctx context.Context, b *Bundle, io IO, o Options) (Container, error) {
	path := cgroupPath(b.Spec, o.SystemdCgroup)
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
	// By its descriptor 3 the process learns that it is in its cgroup, and then, however that happens, that the shim is gone.
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
	c := &pauseContainer{reaper: e.reaper, child: child, group: group, lifeline: ours, exited: make(chan struct{})}
	err = b.Box.Keep(boxLifeline, nil, ours)
	if group != nil {
		err = errors.Join(err, group.Create(), group.Join(child.Pid))
	}
	if err == nil {
		_, err = ours.Write([]byte{pauseGo})
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

// boxLifeline is where the box has the end of the lifeline: the process ends with the shim and all who might take over.
const boxLifeline = "lifeline"

// Adopt implements Adopter.
func (e *PauseEngine) Adopt(_ context.Context, b *Bundle, a Adoption) (Container, error) {
	c := &pauseContainer{reaper: e.reaper, exited: make(chan struct{})}
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

// namespaces says which namespaces the child gets and which it joins; user is the path of a user namespace among these.
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

// startIn forks from a thread that has entered the namespaces and leaves them afterwards; a
// thread that cannot leave ends with its goroutine.
func (e *PauseEngine) startIn(cmd *exec.Cmd, join []joined, user string) (*reaper.Child, error) {
	type result struct {
		child *reaper.Child
		err   error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		back, err := enter(join)
		if err != nil {
			if leave(back) == nil {
				runtime.UnlockOSThread()
			}
			done <- result{err: err}
			return
		}
		child, err := e.start(cmd, user)
		if leave(back) == nil {
			runtime.UnlockOSThread()
		}
		done <- result{child, err}
	}()
	r := <-done
	return r.child, r.err
}

func (e *PauseEngine) start(cmd *exec.Cmd, user string) (*reaper.Child, error) {
	if user != "" {
		return startInUser(e.reaper, cmd, user)
	}
	child, err := e.reaper.Start(cmd)
	if err == nil {
		_ = cmd.Process.Release()
	}
	return child, err
}

// entered is the way back from a namespace.
type entered struct{ flag, fd int }

var namespaceFiles = map[int]string{
	unix.CLONE_NEWPID: "pid_for_children", unix.CLONE_NEWNET: "net", unix.CLONE_NEWIPC: "ipc", unix.CLONE_NEWUTS: "uts",
}

// enter moves the calling thread; it returns the ways back even on error.
func enter(join []joined) (back []entered, err error) {
	for _, j := range join {
		own, err := unix.Open("/proc/thread-self/ns/"+namespaceFiles[j.flag], unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return back, fmt.Errorf("open own namespace: %w", err)
		}
		back = append(back, entered{j.flag, own})
		there, err := unix.Open(j.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return back, fmt.Errorf("open namespace %q: %w", j.path, err)
		}
		err = unix.Setns(there, j.flag)
		unix.Close(there)
		if err != nil {
			return back, fmt.Errorf("join namespace %q: %w", j.path, err)
		}
	}
	return back, nil
}

func leave(back []entered) error {
	var errs []error
	for _, b := range back {
		errs = append(errs, unix.Setns(b.fd, b.flag), unix.Close(b.fd))
	}
	return errors.Join(errs...)
}

// pauseContainer is a pause process as Container and Process.
type pauseContainer struct {
	reaper   *reaper.Reaper
	child    *reaper.Child
	group    *cgroup.Group // nil = where the shim is
	lifeline *os.File      // open as long as the shim lives
	exited   chan struct{}
	exit     Exit
}

func (c *pauseContainer) watch() {
	<-c.child.Done
	code, at := c.child.Status()
	c.exit = Exit{Code: uint32(code), At: at}
	c.lifeline.Close()
	close(c.exited)
}

func (c *pauseContainer) Init() Process { return c }

func (c *pauseContainer) Exec(ctx context.Context, id string, p *specs.Process, io IO) (Process, error) {
	return nil, fmt.Errorf("a pause process has no file system to execute %q from: %w", id, errdefs.ErrNotImplemented)
}

func (c *pauseContainer) Pids(ctx context.Context) ([]int, error) {
	select {
	case <-c.exited:
		return nil, nil
	default:
		return []int{c.child.Pid}, nil
	}
}

func (c *pauseContainer) Pause(ctx context.Context) error {
	return fmt.Errorf("a pause process is not paused: %w", errdefs.ErrNotImplemented)
}

func (c *pauseContainer) Resume(ctx context.Context) error { return c.Pause(ctx) }

// Update has nothing to change: the pod's limits are its parent's.
func (c *pauseContainer) Update(ctx context.Context, r *specs.LinuxResources) error { return nil }

func (c *pauseContainer) Cgroup() string {
	if c.group == nil {
		return ""
	}
	return c.group.Path()
}

func (c *pauseContainer) Details() Details { return Details{PID: c.child.Pid} }

// Delete leaves a cgroup that others (the shim) are in.
func (c *pauseContainer) Delete(ctx context.Context) error {
	if c.group == nil {
		return nil
	}
	if pids, err := c.group.Pids(); err != nil || len(pids) > 0 {
		return err
	}
	return c.group.Remove()
}

func (c *pauseContainer) Pid() int { return c.child.Pid }

func (c *pauseContainer) Start(ctx context.Context) error { return nil }

func (c *pauseContainer) Signal(ctx context.Context, sig syscall.Signal, all bool) error {
	err := c.reaper.Signal(c.child, sig)
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("pause process has ended: %w", errdefs.ErrNotFound)
	}
	return err
}

func (c *pauseContainer) Exited() <-chan struct{} { return c.exited }

func (c *pauseContainer) Exit() Exit { return c.exit }

func (c *pauseContainer) Resize(width, height uint16) error {
	return fmt.Errorf("a pause process has no terminal: %w", errdefs.ErrFailedPrecondition)
}

func (c *pauseContainer) CloseStdin() error { return nil }
