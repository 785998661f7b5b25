// Package cage is the kernel's side of the sandbox: privileges are given up for good, Landlock
// closes the file system except for named trees, and a seccomp list closes the system call table.
//
// It has two halves. Narrow runs in the shim, on the thread that forks: what a new process could
// win is bounded before it exists. Drop and Install run in the new process, on all of its
// threads. It needs a binary built without cgo.
package cage

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Nobody is the user and group that stands in for root.
const Nobody = 65534

// setupCaps is what a new process needs until it has locked itself in.
var setupCaps = []uint{
	unix.CAP_SYS_ADMIN,        // mounts, namespaces, host name
	unix.CAP_SYS_CHROOT,       // its root
	unix.CAP_SETUID,           // its user
	unix.CAP_SETGID,           // its groups
	unix.CAP_DAC_OVERRIDE,     // mount points in directories that others own
	unix.CAP_NET_BIND_SERVICE, // listeners below port 1024
	unix.CAP_SYS_RESOURCE,     // resource limits above the shim's own
}

type capData [2]unix.CapUserData

// Narrow bounds what a child of the calling thread can have: the capabilities of its set-up, an
// empty bounding set, no_new_privs. It is called within thread.Run.
func Narrow() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data capData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for i := range data {
		data[i].Inheritable = 0
	}
	for _, c := range setupCaps {
		bit := uint32(1) << (c % 32)
		data[c/32].Inheritable |= data[c/32].Permitted & bit
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("set inheritable capabilities: %w", err)
	}
	for c := uintptr(0); c < 64; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err == unix.EINVAL {
			break // beyond the last one this kernel knows
		}
		if err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	return noNewPrivs()
}

func noNewPrivs() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// Drop makes every thread of the process the given user, which is not root, without any capability.
// The process no longer can be traced or dumped.
func Drop(uid, gid uint32, groups []uint32) error {
	if uid == 0 {
		return fmt.Errorf("drop privileges: user 0")
	}
	list := make([]int, len(groups))
	for i, g := range groups {
		list[i] = int(g)
	}
	if err := syscall.Setgroups(list); err != nil {
		return fmt.Errorf("set groups: %w", err)
	}
	if err := syscall.Setresgid(int(gid), int(gid), int(gid)); err != nil {
		return fmt.Errorf("set group %d: %w", gid, err)
	}
	if err := syscall.Setresuid(int(uid), int(uid), int(uid)); err != nil {
		return fmt.Errorf("set user %d: %w", uid, err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none capData
	if err := AllThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("clear dumpable: %w", err)
	}
	// On every thread: the one that installs a filter may be another.
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("set no_new_privs: %w", errno)
	}
	return nil
}

// AllThreads makes a system call on every thread of the process. All of them must get the same
// result.
//
//go:uintptrescapes
func AllThreads(trap, a1, a2, a3 uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall(trap, a1, a2, a3)
	if errno == syscall.ENOTSUP {
		return fmt.Errorf("system call on all threads: built with cgo: %w", errno)
	}
	if errno != 0 {
		return errno
	}
	return nil
}
