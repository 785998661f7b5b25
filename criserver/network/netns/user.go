package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// IDMap is a range of users or groups inside a user namespace and outside.
type IDMap struct {
	Inside, Outside, Length uint32
}

// UserOptions are the ids of a user namespace.
type UserOptions struct{ UIDs, GIDs IDMap }

// WithUserNamespace calls fn with the file of a new user namespace, which lasts as long as
// something uses it.
//
// # Errors
//
// Those of the kernel, for ids that cannot be; otherwise fn's own.
func WithUserNamespace(o UserOptions, fn func(path string) error) error {
	return withProcess(o, 0, func(dir string) error { return fn(filepath.Join(dir, UserFile)) })
}

// withProcess calls fn with the folder /proc/<pid>/ns of a process in a new user namespace and,
// owned by it, new namespaces of the kinds in flags.
//
// Only a process of one thread can make a user namespace, so it is one that runs no program yet: it
// was told to stop before its program's first instruction, and is killed there.
func withProcess(o UserOptions, flags int, fn func(dir string) error) (err error) {
	runtime.LockOSThread() // the thread that traces
	defer runtime.UnlockOSThread()
	process, err := os.StartProcess("/proc/self/exe", []string{"sunaba-namespaces"}, &os.ProcAttr{
		Dir: "/", Env: []string{},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  uintptr(unix.CLONE_NEWUSER | flags),
			UidMappings: []syscall.SysProcIDMap{o.UIDs.sys()}, GidMappings: []syscall.SysProcIDMap{o.GIDs.sys()},
			GidMappingsEnableSetgroups: true,
			Ptrace:                     true, Pdeathsig: unix.SIGKILL,
		},
	})
	if err != nil {
		return fmt.Errorf("make user namespace: %w", err)
	}
	defer func() {
		killed := process.Kill()
		if _, werr := process.Wait(); werr != nil {
			err = errors.Join(err, killed, fmt.Errorf("end process in user namespace: %w", werr))
		}
	}()
	return fn(filepath.Join("/proc", strconv.Itoa(process.Pid), "ns"))
}

func (m IDMap) sys() syscall.SysProcIDMap {
	return syscall.SysProcIDMap{ContainerID: int(m.Inside), HostID: int(m.Outside), Size: int(m.Length)}
}

// pinOwned pins a new user namespace and the other kinds, which it owns.
func pinOwned(dir string, kinds []kind, o PinOptions, sysctls []sysctl) error {
	flags := 0
	for _, k := range kinds {
		flags |= k.flag
	}
	return withProcess(*o.User, flags, func(proc string) error {
		for _, k := range append([]kind{{UserFile, unix.CLONE_NEWUSER}}, kinds...) {
			if err := bind(filepath.Join(proc, k.file), filepath.Join(dir, k.file)); err != nil {
				return err
			}
		}
		return onThread(func() error {
			for _, k := range kinds {
				if err := join(filepath.Join(dir, k.file), k.flag); err != nil {
					return err
				}
			}
			return o.settle(sysctls)
		})
	})
}

// join moves the calling thread into a pinned namespace.
func join(path string, flag int) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open namespace %q: %w", path, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, flag); err != nil {
		return fmt.Errorf("enter namespace %q: %w", path, err)
	}
	return nil
}
