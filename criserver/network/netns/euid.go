package netns

import (
	"fmt"
	"syscall"
)

// asUser calls fn while the effective user of the calling thread, and of no other, is uid.
func asUser(uid uint32, fn func() error) error {
	const keep = ^uintptr(0)
	if _, _, errno := syscall.RawSyscall(sysSetresuid, keep, uintptr(uid), keep); errno != 0 {
		return fmt.Errorf("become user %d: %w", uid, errno)
	}
	err := fn()
	if _, _, errno := syscall.RawSyscall(sysSetresuid, keep, 0, keep); errno != 0 {
		return fmt.Errorf("become root again: %w", errno)
	}
	return err
}
