package cage

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Tree is a directory that stays reachable under Landlock.
type Tree struct {
	FD       int
	ReadOnly bool
}

// Rights of Landlock by the version that brought them. Version 1 forbids renames between
// directories outright, so that it is not used.
const (
	landlockRead  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
	landlockNever = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR |
		unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK
)

// landlockVersion is what the kernel has, 0 for none.
func landlockVersion() int {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(version)
}

// Confine leaves every thread of the process only the given trees. Where the kernel has no
// Landlock (or an old one) it does nothing: it is one wall of several.
func Confine(trees []Tree) error {
	version := landlockVersion()
	if version < 2 {
		return nil
	}
	write := uint64(landlockWrite)
	if version >= 3 {
		write |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	// Only the file rights are passed, the first field. Scoping signals would cut threads off from
	// each other on some kernels, because each thread gets a domain of its own; the seccomp list
	// has no kill(2) anyway.
	attr := unix.LandlockRulesetAttr{Handled_access_fs: landlockRead | write | landlockNever}
	size := unsafe.Sizeof(attr.Handled_access_fs)
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("make landlock rules: %w", errno)
	}
	defer unix.Close(int(ruleset))
	for _, t := range trees {
		rule := unix.LandlockPathBeneathAttr{Allowed_access: landlockRead, Parent_fd: int32(t.FD)}
		if !t.ReadOnly {
			rule.Allowed_access |= write
		}
		_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset, unix.LANDLOCK_RULE_PATH_BENEATH,
			uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
		if errno != 0 {
			return fmt.Errorf("add landlock rule: %w", errno)
		}
	}
	if err := AllThreads(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); err != nil {
		return fmt.Errorf("enforce landlock: %w", err)
	}
	return nil
}
