package guest

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/cage"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// prepare does everything that needs root and ends with locking the process in.
func (p *process) prepare() error {
	c := &p.config
	var err error
	var cache *tree // where the compiled module is
	if c.Join != 0 {
		p.guest.root, cache, err = p.join()
		p.guest.cache = "/"
	} else {
		p.guest.root, cache, err = p.layOut()
		p.guest.cache = "/" + cacheName
	}
	if err != nil {
		return err
	}
	if c.Hostname != "" {
		if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
			return fmt.Errorf("set host name: %w", err)
		}
	}
	if !c.Load.Component || c.Load.HTTP { // any other component makes its listeners itself, perhaps on these ports
		if p.guest.ports, err = bindPorts(c.Listen); err != nil {
			return err
		}
	}
	if c.Umask != nil {
		if err := p.setUmask(*c.Umask); err != nil {
			return err
		}
	}
	if err := setRlimits(c.Rlimits); err != nil {
		return err
	}
	return p.lockIn(cache)
}

// setUmask sets the mask for files that all threads make.
func (p *process) setUmask(mask uint32) error {
	if p.config.Join == 0 {
		unix.Umask(int(mask))
		return nil
	}
	// Threads that are parted have one each. All must get the same answer, which is the mask that
	// they started with.
	if err := cage.AllThreads(unix.SYS_UMASK, uintptr(mask), 0, 0); err != nil {
		return fmt.Errorf("set umask: %w", err)
	}
	return nil
}

// lockIn gives up what prepare had. From here on the process is what its guest may become.
func (p *process) lockIn(cache *tree) error {
	err := cage.Confine([]cage.Tree{{FD: int(p.guest.root.fd)}, {FD: cache.fd, ReadOnly: true}})
	if err != nil {
		return err
	}
	cache.close()
	if err := cage.Drop(p.config.UID, p.config.GID, p.config.Groups); err != nil {
		return err
	}
	return p.callLists().guest.Install()
}

// setRlimits sets the container's resource limits except the size of the address space, which the
// reservations of this process would exceed at once.
func setRlimits(limits []link.Rlimit) error {
	for _, l := range limits {
		if l.Resource == unix.RLIMIT_AS {
			continue
		}
		want := unix.Rlimit{Cur: l.Soft, Max: l.Hard}
		err := unix.Setrlimit(l.Resource, &want)
		if errors.Is(err, unix.EPERM) { // no CAP_SYS_RESOURCE: as much as we may
			var have unix.Rlimit
			if err := unix.Getrlimit(l.Resource, &have); err != nil {
				return fmt.Errorf("read resource limit %d: %w", l.Resource, err)
			}
			want.Max = min(want.Max, have.Max)
			want.Cur = min(want.Cur, want.Max)
			err = unix.Setrlimit(l.Resource, &want)
		}
		if err != nil {
			return fmt.Errorf("set resource limit %d: %w", l.Resource, err)
		}
	}
	return nil
}
