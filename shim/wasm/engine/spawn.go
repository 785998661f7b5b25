package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/oomscore"
	"github.com/sunaba-project/sunaba/host/thread"
	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/reaper"
	"github.com/sunaba-project/sunaba/shim/wasm/cage"
	"github.com/sunaba-project/sunaba/shim/wasm/guest"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// guestEnv keeps the Go runtime of a guest process small. It starts with one P: docs/RATIONALE.md,
// "Guests start from a prewarmed process". The collector is off except for a limit that the process
// sets itself: a collection would stop the world, and a guest that computes cannot be stopped. Huge
// pages would make the heap twice as large: docs/RATIONALE.md, "Small heaps in shims and guests";
// linear memory has them. The runtime would look for limits of CPU time, and keep files of the
// host's cgroups open for that.
var guestEnv = []string{"GOMAXPROCS=1", "GOGC=off", "GOTRACEBACK=single", "GODEBUG=disablethp=1,containermaxprocs=0,updatemaxprocs=0"}

// birth is how a guest process comes into being.
type birth struct {
	io        shim.IO
	cgroup    func() (*limited, error)
	frozen    bool       // the cgroup may be
	born      bool       // the process was born in its cgroup
	first     bool       // the container's first process
	oom       *int       // oom_score_adj
	clone     uintptr    // namespaces to make
	join      []*os.File // namespaces to enter before, on the forking thread
	inherited []*os.File // descriptors from link.FD+1 on
}

// newborn is a guest process that waits for its configuration.
type newborn struct {
	child *reaper.Child
	link  *os.File // our end
	err   error    // why there is none

	prewarmed bool     // it was there before its container
	group     *limited // a prewarmed one's: its container's, without that's limits
}

// fork starts a guest process that waits for its configuration.
func (e *Engine) fork(b *birth) *newborn {
	n, err := e.forkWith(b)
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENFILE) { // the kernel's words for a cgroup that is full
		err = fmt.Errorf("%w: does a memory limit of its container or pod leave no room for a process?", err)
	}
	if err != nil {
		return &newborn{err: fmt.Errorf("start guest process: %w", err)}
	}
	return n
}

// discard ends a process that is not wanted, and returns when it has exited. A prewarmed one's
// cgroup is deleted.
func (e *Engine) discard(n *newborn) error {
	if n.child != nil {
		e.destroy(n.child)
		n.link.Close()
	}
	return n.group.destroy()
}

func (e *Engine) forkWith(b *birth) (*newborn, error) {
	cmd := exec.Command(e.options.Self, "guest")
	if !b.first {
		cmd.Args = append(cmd.Args, guest.Further)
	}
	cmd.Env = guestEnv
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: b.clone &^ unix.CLONE_NEWNET, Setsid: true}
	if b.io.Stdin != nil {
		cmd.Stdin = b.io.Stdin
	}
	if b.io.Stdout != nil {
		cmd.Stdout = b.io.Stdout
	}
	if b.io.Stderr != nil {
		cmd.Stderr = b.io.Stderr
	}
	if b.io.Terminal && b.io.Stdin != nil {
		cmd.SysProcAttr.Setctty = true // its descriptor 0
	}
	if cgroup.Unified() {
		dir, err := b.dir()
		if err != nil {
			return nil, err
		}
		if dir != nil {
			defer dir.Close()
			b.born = true
			cmd.SysProcAttr.UseCgroupFD = true
			cmd.SysProcAttr.CgroupFD = int(dir.Fd())
		}
	}
	var n *newborn
	var err error
	thread.Run(func() {
		if err = b.enterNamespaces(); err == nil {
			n, err = e.forkHere(b, cmd)
		}
	})
	return n, err
}

// forkHere starts the process from this thread, which has all that the process is born with.
func (e *Engine) forkHere(b *birth, cmd *exec.Cmd) (*newborn, error) {
	// A socket belongs to the network namespace that it was made in: the process could give its end
	// a name there.
	ours, theirs, err := link.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd.ExtraFiles = append([]*os.File{theirs}, b.inherited...)
	if err = cage.Narrow(); err == nil {
		b.enterThread()
		var child *reaper.Child
		if child, err = e.reaper.Start(cmd); err == nil {
			_ = cmd.Process.Release() // the reaper has it
			return &newborn{child: child, link: ours}, nil
		}
	}
	ours.Close()
	return nil, err
}

// enterNamespaces moves the forking thread, all but the namespaces that the process makes itself.
func (b *birth) enterNamespaces() error {
	for _, ns := range b.join {
		if err := unix.Setns(int(ns.Fd()), 0); err != nil {
			return fmt.Errorf("enter namespace %q: %w", ns.Name(), err)
		}
	}
	if b.clone&unix.CLONE_NEWNET == 0 {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	return nil
}

// dir is the cgroup's directory for clone3, nil if it cannot be used so. What is wrong with the
// cgroup is for settle to say.
func (b *birth) dir() (*os.File, error) {
	group, err := b.cgroup()
	if err != nil {
		return nil, nil
	}
	return group.dir()
}

// enterThread moves the forking thread into the cgroup, unless it would stop there.
func (b *birth) enterThread() {
	if b.born || b.frozen {
		return
	}
	if group, err := b.cgroup(); err == nil {
		b.born = group.enterThread()
	}
}

// settle accounts a new process, which still waits, to its container.
func (e *Engine) settle(n *newborn, b *birth) error {
	if !n.prewarmed && !b.born {
		group, err := b.cgroup()
		if err != nil {
			return err
		}
		enter := group.add
		if b.first {
			enter = group.enter
		}
		if err := enter(n.child.Pid); err != nil {
			return fmt.Errorf("enter cgroup %q: %w", group.Path(), err)
		}
	}
	return setOOMScore(n.child.Pid, b.oom)
}

// setOOMScore sets a process's oom_score_adj, nil leaves it.
func setOOMScore(pid int, score *int) error {
	if score == nil {
		return nil
	}
	err := oomscore.Set(pid, *score)
	// Without CAP_SYS_RESOURCE it cannot be lower than ours, which it has by birth.
	if err != nil && !errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("set oom_score_adj: %w", err)
	}
	return nil
}

// destroy ends a process that is not wanted and returns when it is gone.
func (e *Engine) destroy(child *reaper.Child) {
	if err := e.reaper.Signal(child, unix.SIGKILL); err == nil || errors.Is(err, os.ErrProcessDone) {
		<-child.Done
	}
}

// initBirth reads from the spec which namespaces the container's first process makes and which it
// enters. A guest has its own mount, PID, IPC and UTS namespace even where the spec leaves it in
// the host's: WASI shows it none of them.
func initBirth(spec *specs.Spec) (birth, error) {
	b := birth{first: true, clone: unix.CLONE_NEWNS}
	if spec.Process != nil {
		b.oom = spec.Process.OOMScoreAdj
	}
	for _, kind := range []struct {
		name specs.LinuxNamespaceType
		flag uintptr
	}{
		{specs.NetworkNamespace, unix.CLONE_NEWNET},
		{specs.IPCNamespace, unix.CLONE_NEWIPC},
		{specs.UTSNamespace, unix.CLONE_NEWUTS},
		{specs.PIDNamespace, unix.CLONE_NEWPID},
	} {
		ns := namespace(spec, kind.name)
		switch {
		case ns != nil && ns.Path != "":
			f, err := os.Open(ns.Path)
			if err != nil {
				b.close()
				return birth{}, fmt.Errorf("open %s namespace: %w: %w", kind.name, err, errdefs.ErrFailedPrecondition)
			}
			b.join = append(b.join, f)
		case ns != nil || kind.name != specs.NetworkNamespace:
			b.clone |= kind.flag
		}
	}
	return b, nil
}

// furtherBirth is how a process joins the container whose first process is pid.
func furtherBirth(pid int) (birth, error) {
	b := birth{}
	dir := "/proc/" + strconv.Itoa(pid) + "/ns/"
	for _, name := range []string{"net", "ipc", "uts", "pid"} {
		f, err := os.Open(dir + name)
		if err != nil {
			b.close()
			return birth{}, err
		}
		b.join = append(b.join, f)
	}
	mounts, err := os.Open(dir + "mnt")
	if err != nil {
		b.close()
		return birth{}, err
	}
	b.inherited = []*os.File{mounts} // entered by the process itself, all of its threads
	return b, nil
}

// joinFD is where a process finds the first inherited descriptor.
const joinFD = link.FD + 1

func (b *birth) close() {
	closeAll(b.join)
	closeAll(b.inherited)
}
