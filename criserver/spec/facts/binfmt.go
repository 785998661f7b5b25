package facts

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// RunsOtherFormats says whether this kernel is told, by binfmt_misc, to execute files that are
// neither its own programs nor scripts; also when that cannot be found out. A mount of its own
// shows the entries wherever the machine's is.
func RunsOtherFormats() bool {
	fs, err := unix.Fsopen("binfmt_misc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err != unix.ENODEV // the kernel has no such thing
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return true
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return true
	}
	defer unix.Close(mount)
	fd, err := unix.Openat(mount, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	dir := os.NewFile(uintptr(fd), "binfmt_misc")
	defer dir.Close()
	names, err := dir.Readdirnames(0)
	return err != nil || slices.ContainsFunc(names, func(name string) bool { return name != "register" && name != "status" })
}
