package guest

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/cage"
)

// join enters the mount namespace of a container that runs and makes the compiled module's
// directory this process's root; the container's tree stays reachable by descriptor alone. Threads
// share their root and working directory until they are parted, which setns(2) demands.
func (p *process) join() (rootfs, cache *tree, err error) {
	c := &p.config
	if cache, err = p.nextTree(); err == nil {
		err = cache.becomeEntry()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("take compiled module: %w", err)
	}
	if err := cage.AllThreads(unix.SYS_UNSHARE, unix.CLONE_FS, 0, 0); err != nil {
		return nil, nil, fmt.Errorf("part threads: %w", err)
	}
	if err := cage.AllThreads(unix.SYS_SETNS, uintptr(c.Join), unix.CLONE_NEWNS, 0); err != nil {
		return nil, nil, fmt.Errorf("join mount namespace: %w", err)
	}
	unix.Close(c.Join)
	fd, err := unix.Open("/"+rootfsName, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open container's root: %w", err)
	}
	if err := cage.AllThreads(unix.SYS_FCHDIR, uintptr(cache.fd), 0, 0); err != nil {
		return nil, nil, fmt.Errorf("enter compiled module: %w", err)
	}
	here := []byte(".\x00")
	if err := cage.AllThreads(unix.SYS_CHROOT, uintptr(unsafe.Pointer(&here[0])), 0, 0); err != nil {
		return nil, nil, fmt.Errorf("change root: %w", err)
	}
	return &tree{fd}, cache, nil
}
