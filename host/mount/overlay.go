package mount

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// attributes are mount(2)'s flags as fsmount(2) names them.
var attributes = map[uintptr]int{
	unix.MS_RDONLY: unix.MOUNT_ATTR_RDONLY, unix.MS_NOSUID: unix.MOUNT_ATTR_NOSUID, unix.MS_NODEV: unix.MOUNT_ATTR_NODEV,
	unix.MS_NOEXEC: unix.MOUNT_ATTR_NOEXEC, unix.MS_NOATIME: unix.MOUNT_ATTR_NOATIME, unix.MS_STRICTATIME: unix.MOUNT_ATTR_STRICTATIME,
	unix.MS_NODIRATIME: unix.MOUNT_ATTR_NODIRATIME,
}

// Overlay mounts an overlay whose options do not fit into the one page that mount(2) takes: the
// lower directories are passed one by one. data are the file system's options, flags those of
// mount(2).
//
// # Errors
//
// ErrNotImplemented and EINVAL if the kernel does not take lower directories one by one (before
// Linux 6.8).
func Overlay(data []string, flags uintptr, target string) error {
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open overlay: %w", err)
	}
	defer unix.Close(fd)
	for _, o := range data {
		if err := setOption(fd, o); err != nil {
			return err
		}
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return fmt.Errorf("create overlay of %d options: %w", len(data), err)
	}
	attr := 0
	for flag, a := range attributes {
		if flags&flag != 0 {
			attr |= a
		}
	}
	m, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, attr)
	if err != nil {
		return fmt.Errorf("create mount: %w", err)
	}
	defer unix.Close(m)
	if err := unix.MoveMount(m, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount overlay at %q: %w", target, err)
	}
	return nil
}

// setOption sets one option of an overlay that is not created yet.
func setOption(fd int, option string) (err error) {
	name, value, _ := strings.Cut(option, "=")
	switch {
	case name == "lowerdir":
		for dir := range strings.SplitSeq(value, ":") {
			err := unix.FsconfigSetString(fd, "lowerdir+", dir)
			if errors.Is(err, unix.EINVAL) {
				err = fmt.Errorf("%w: overlays of so many layers need Linux 6.8: %w", err, errdefs.ErrNotImplemented)
			}
			if err != nil {
				return fmt.Errorf("add layer %q: %w", dir, err)
			}
		}
	case value == "":
		err = unix.FsconfigSetFlag(fd, name)
	default:
		err = unix.FsconfigSetString(fd, name, value)
	}
	if err != nil {
		return fmt.Errorf("set mount option %q: %w", option, err)
	}
	return nil
}
