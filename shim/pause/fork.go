package pause

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/reaper"
)

// jump is all that a pause process needs on its way into a user namespace. Only a process of one
// thread can enter one, which no Go program is, and package syscall cannot do it between fork and
// exec either. So the fork is made here: the first child enters the user namespace and forks the
// process proper, whose PID namespace then belongs to it.
//
// The children do nothing but system calls: they have the memory of a Go program, but not its
// threads.
type jump struct {
	user       uintptr // descriptor of the user namespace
	clone      uintptr // namespaces of the process proper
	files      [4]uintptr
	program    *byte
	argv, envv **byte
	root       *byte
	signals    unix.Sigset_t // empty
	report     uintptr       // pipe for two numbers: the process's pid, and why its setup failed
	number     int32
}

// lowest is above the descriptors that the process gets.
const lowest = 10

// startInUser starts cmd, of which only path, arguments, streams and clone flags count, inside a
// user namespace as its root. The calling thread has entered all other namespaces that the process
// joins.
func startInUser(r *reaper.Reaper, cmd *exec.Cmd, path string) (*reaper.Child, error) {
	var held []*os.File
	defer func() {
		for _, f := range held {
			f.Close()
		}
	}()
	lift := func(fd int) (uintptr, error) {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, lowest)
		if err != nil {
			return 0, err
		}
		held = append(held, os.NewFile(uintptr(n), "lifted"))
		return uintptr(n), nil
	}
	user, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	held = append(held, user)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	held = append(held, null)
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	held = append(held, write)

	j := &jump{clone: cmd.SysProcAttr.Cloneflags | uintptr(unix.SIGCHLD)}
	null3 := int(null.Fd())
	for i, fd := range [4]int{null3, null3, null3, int(cmd.ExtraFiles[0].Fd())} {
		if j.files[i], err = lift(fd); err != nil {
			return nil, err
		}
	}
	if j.user, err = lift(int(user.Fd())); err != nil {
		return nil, err
	}
	if j.report, err = lift(int(write.Fd())); err != nil {
		return nil, err
	}
	if err := j.name(cmd); err != nil {
		return nil, err
	}
	first, err := j.fork()
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	for _, f := range held { // the pipe ends with the children's copies
		f.Close()
	}
	held = nil
	<-r.Watch(first).Done
	return j.result(r, read)
}

// name sets the strings that the process is started with.
func (j *jump) name(cmd *exec.Cmd) error {
	program, err := syscall.BytePtrFromString(cmd.Path)
	if err != nil {
		return err
	}
	argv, err := syscall.SlicePtrFromStrings(cmd.Args)
	if err != nil {
		return err
	}
	root, err := syscall.BytePtrFromString("/")
	if err != nil {
		return err
	}
	j.program, j.argv, j.envv, j.root = program, &argv[0], &[]*byte{nil}[0], root
	return nil
}

// result reads what the children report.
func (j *jump) result(r *reaper.Reaper, read io.Reader) (*reaper.Child, error) {
	data, err := io.ReadAll(read)
	if err != nil {
		return nil, fmt.Errorf("read report of pause process: %w", err)
	}
	var child *reaper.Child
	var failed error
	for ; len(data) >= 4; data = data[4:] {
		if n := int32(binary.NativeEndian.Uint32(data)); n > 0 {
			child = r.Watch(int(n))
		} else {
			failed = errors.Join(failed, syscall.Errno(-n))
		}
	}
	if failed == nil && child != nil {
		return child, nil
	}
	if child != nil {
		<-child.Done // it ends by itself
	}
	return nil, fmt.Errorf("enter user namespace: %w", errors.Join(failed, io.ErrUnexpectedEOF))
}

// fork makes the first child. Signals are blocked meanwhile: the children could not handle them.
func (j *jump) fork() (pid int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return 0, err
	}
	child, errno := j.leap()
	err = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	runtime.KeepAlive(j)
	if errno != 0 {
		return 0, errno
	}
	return int(child), err
}

// leap forks; in the children it does not return.
//
//go:noinline
//go:norace
//go:nosplit
func (j *jump) leap() (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	// The first child.
	_, _, errno = syscall.RawSyscall(unix.SYS_SETNS, j.user, unix.CLONE_NEWUSER, 0)
	if errno == 0 {
		pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, j.clone|unix.CLONE_PARENT, 0, 0, 0, 0, 0)
	}
	if errno != 0 || pid != 0 {
		j.number = int32(pid)
		if errno != 0 {
			j.number = -int32(errno)
		}
		syscall.RawSyscall(unix.SYS_WRITE, j.report, uintptr(unsafe.Pointer(&j.number)), 4)
		for {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	// The process proper: root of the user namespace, whose powers it has after exec too.
	_, _, errno = syscall.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_SETRESGID, 0, 0, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	}
	for i := uintptr(0); errno == 0 && i < 4; i++ {
		_, _, errno = syscall.RawSyscall(unix.SYS_DUP3, j.files[i], i, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(j.root)), 0, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&j.signals)), 0, 8, 0, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(j.program)), uintptr(unsafe.Pointer(j.argv)), uintptr(unsafe.Pointer(j.envv)))
	}
	j.number = -int32(errno)
	syscall.RawSyscall(unix.SYS_WRITE, j.report, uintptr(unsafe.Pointer(&j.number)), 4)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}
