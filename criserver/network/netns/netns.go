// Package netns makes the namespaces that the containers of a pod share (network, IPC, UTS), gives
// them their hostname and sysctls, and keeps them alive without a process by bind mounts.
//
// [PinNamespaces] makes dir/net, dir/ipc and dir/uts, or none of them; other processes join them by
// these paths; [UnpinNamespaces] removes those that exist. The kernel ends a namespace in the
// background once its last process has exited and its pin is removed, with a network namespace's
// links.
//
// The pins are mounts in the caller's mount namespace. The root mount is often private, so mount
// namespaces that existed before do not see them: a process that opens them must share the caller's
// mount namespace or be cloned from it afterwards. A process in a copy of the mount namespace that
// has not left the old root keeps a namespace alive after its unpinning.
package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/thread"
)

// Names of the pins below the directory given to [PinNamespaces].
const (
	NetFile = "net"
	IPCFile = "ipc"
	UTSFile = "uts"
	// UserFile is there where the others belong to a user namespace of the pod's own.
	UserFile = "user"
)

// maxHostname is the kernel's limit (__NEW_UTS_LEN), in bytes.
const maxHostname = 64

// PinOptions says which namespaces a pod has of its own, and what is set inside them.
type PinOptions struct {
	Net, IPC, UTS bool
	// User, if not nil, is a new user namespace that owns the others; it is pinned beside them.
	User *UserOptions
	// Hostname is set in the UTS namespace, at most 64 bytes. Empty: the node's name stays.
	Hostname string
	// Sysctls by their names, with dots or slashes as sysctl(8) takes them. Those of an interface
	// that only network setup makes (net.ipv4.conf.eth0.…) are checked here and set by
	// [SetInterfaceSysctls].
	Sysctls map[string]string
}

type kind struct {
	file string // name of the pin and of the file in /proc/<pid>/ns
	flag int    // for unshare
}

func (o PinOptions) kinds() []kind {
	own := map[string]bool{NetFile: o.Net, IPCFile: o.IPC, UTSFile: o.UTS}
	all := []kind{{NetFile, unix.CLONE_NEWNET}, {IPCFile, unix.CLONE_NEWIPC}, {UTSFile, unix.CLONE_NEWUTS}}
	return slices.DeleteFunc(all, func(k kind) bool { return !own[k.file] })
}

// PinNamespaces makes new namespaces and pins them at dir/net, dir/ipc and dir/uts, and dir/user.
// dir and its parents are made. In a new network namespace the loopback link is up, unprivileged
// processes may listen on every port and send pings. On an error nothing is left behind.
//
// # Errors
//
// ErrInvalidArgument for a sysctl that does not exist, is not namespaced or belongs to a namespace
// that the pod shares with the node, and for a hostname that is too long; ErrAlreadyExists when dir
// already holds a pin.
func PinNamespaces(dir string, o PinOptions) error {
	sysctls, err := parseSysctls(o)
	if err != nil {
		return err
	}
	if len(o.Hostname) > maxHostname {
		return fmt.Errorf("set hostname %q: longer than %d bytes: %w", o.Hostname, maxHostname, errdefs.ErrInvalidArgument)
	}
	if o.Hostname != "" && !o.UTS {
		return fmt.Errorf("set hostname %q: the pod has no UTS namespace of its own: %w", o.Hostname, errdefs.ErrInvalidArgument)
	}
	kinds := o.kinds()
	for _, k := range kinds {
		if Pinned(filepath.Join(dir, k.file)) {
			return fmt.Errorf("pin namespace %q: %w", filepath.Join(dir, k.file), errdefs.ErrAlreadyExists)
		}
	}
	if len(kinds) == 0 && o.User == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("make directory of pins: %w", err)
	}
	if o.User != nil {
		err = pinOwned(dir, kinds, o, sysctls)
	} else {
		err = onThread(func() error { return pin(dir, kinds, o, sysctls) })
	}
	if err != nil {
		return errors.Join(err, UnpinNamespaces(dir))
	}
	return nil
}

// pin runs on a thread that nothing else will use again.
func pin(dir string, kinds []kind, o PinOptions, sysctls []sysctl) error {
	flags := 0
	for _, k := range kinds {
		flags |= k.flag
	}
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("unshare namespaces of a pod: %w", err)
	}
	if err := o.settle(sysctls); err != nil {
		return err
	}
	for _, k := range kinds {
		if err := bind(filepath.Join("/proc/thread-self/ns", k.file), filepath.Join(dir, k.file)); err != nil {
			return err
		}
	}
	return nil
}

// settle sets what new namespaces hold; the thread is in them.
func (o PinOptions) settle(sysctls []sysctl) error {
	if o.Hostname != "" {
		if err := unix.Sethostname([]byte(o.Hostname)); err != nil {
			return fmt.Errorf("set hostname %q: %w", o.Hostname, err)
		}
	}
	if o.Net {
		if err := loopbackUp(); err != nil {
			return err
		}
	}
	for _, s := range sysctls {
		if s.late() {
			continue
		}
		set := s.set
		if o.User != nil && s.ipc() {
			// The kernel lets only the root of its user namespace set what an IPC namespace holds.
			set = func() error { return asUser(o.User.UIDs.Outside, s.set) }
		}
		if err := set(); err != nil {
			return err
		}
	}
	return nil
}

func bind(source, target string) error {
	f, err := os.OpenFile(target, os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o444)
	if err != nil {
		return fmt.Errorf("make mount point of pin: %w", err)
	}
	f.Close()
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind namespace to %q: %w", target, err)
	}
	return nil
}

// UnpinNamespaces takes the pins in dir away, and dir itself when nothing else is in it. It is
// idempotent and takes a half-made directory as well.
func UnpinNamespaces(dir string) error {
	var errs []error
	for _, name := range []string{NetFile, IPCFile, UTSFile, UserFile} {
		path := filepath.Join(dir, name)
		for Pinned(path) {
			if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				errs = append(errs, fmt.Errorf("unmount pin %q: %w", path, err))
				break
			}
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove pin: %w", err))
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		errs = append(errs, fmt.Errorf("remove directory of pins: %w", err))
	}
	return errors.Join(errs...)
}

// Pinned reports whether path is a pinned namespace: a file on which the kernel's nsfs is mounted.
func Pinned(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && int64(fs.Type) == unix.NSFS_MAGIC
}

// Do calls fn on a thread inside the network namespace pinned at path. fn must not start goroutines
// that need to be in there: a socket belongs to the namespace in which it was made and can be used
// from anywhere.
//
// # Errors
//
// ErrNotFound when path is not there or no longer a namespace; otherwise fn's own.
func Do(path string, fn func() error) error {
	f, err := Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return DoFile(f, fn)
}

// Open opens the namespace pinned at path.
//
// # Errors
//
// ErrNotFound when path is not there or no longer a namespace.
func Open(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open network namespace %q: %w", path, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || int64(fs.Type) != unix.NSFS_MAGIC {
		f.Close()
		return nil, fmt.Errorf("open network namespace %q: not a namespace: %w", path, errdefs.ErrNotFound)
	}
	return f, nil
}

// DoFile is [Do] for a network namespace that is already open.
func DoFile(ns *os.File, fn func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %q: %w", ns.Name(), err)
		}
		return fn()
	})
}

// onThread calls fn on a thread of its own, which ends with it: whatever fn does to the thread's
// namespaces is seen by no other thread.
func onThread(fn func() error) (err error) {
	thread.Run(func() { err = fn() })
	return err
}

// loopbackUp sets the link lo of the thread's network namespace up; the kernel adds its addresses.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("set link lo up: %w", err)
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("set link lo up: %w", err)
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, req); err != nil {
		return fmt.Errorf("read flags of link lo: %w", err)
	}
	req.SetUint16(req.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("set link lo up: %w", err)
	}
	return nil
}
