package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	hostmount "github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/host/thread"
)

// Mount is one mount of a root filesystem or of an image.
type Mount = hostmount.Mount

// MountRoot mounts a bundle's root filesystem at its rootfs directory, which it makes if need be,
// and returns that directory. userns is the user namespace that the container joins, "" for none:
// an overlay with the options uidmap= and gidmap= shows the owners in it. On error nothing stays
// mounted.
func MountRoot(dir string, mounts []Mount, userns string) (string, error) {
	root := filepath.Join(dir, RootfsName)
	if err := os.Mkdir(root, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	for _, m := range mounts {
		var mapped bool
		m.Options, mapped = takeMapping(m.Options)
		var err error
		if mapped {
			err = mountMapped(m, dir, root, userns)
		} else {
			err = mount(m, root)
		}
		if err != nil {
			return "", errors.Join(fmt.Errorf("mount root filesystem: %w", err), UnmountRoot(dir))
		}
	}
	return root, nil
}

func mount(m Mount, root string) error {
	target := root
	if m.Target != "" {
		target = filepath.Join(root, filepath.Join("/", m.Target))
	}
	flags, data, err := hostmount.ParseOptions(m.Options)
	if err != nil {
		return err
	}
	kind := m.Type
	if kind == "bind" || kind == "rbind" {
		flags |= unix.MS_BIND
		kind = ""
	}
	call := func(data []string) error {
		err := unix.Mount(m.Source, target, kind, flags, strings.Join(data, ","))
		if errors.Is(err, unix.EINVAL) && readOnly(data) {
			err = unix.EROFS
		}
		if err != nil {
			return fmt.Errorf("mount %s %q at %q: %w", m.Type, m.Source, target, err)
		}
		return nil
	}
	short, _ := shorten(data)
	switch {
	case len(strings.Join(data, ",")) < os.Getpagesize():
		err = call(data)
	case kind == "overlay" && (short == nil || len(strings.Join(short, ",")) >= os.Getpagesize()):
		err = hostmount.Overlay(data, flags, target)
	default:
		err = mountShort(data, call)
	}
	if err != nil {
		return err
	}
	if again := flags &^ (unix.MS_BIND | unix.MS_REC); flags&unix.MS_BIND != 0 && again != 0 {
		// The kernel looks at a bind mount's other flags only when it is mounted again.
		if err := unix.Mount("", target, "", flags|unix.MS_REMOUNT, ""); err != nil {
			return fmt.Errorf("remount %q: %w", target, err)
		}
	}
	return nil
}

// readOnly says whether an overlay's upper directory is on a file system that is read-only, which
// the kernel calls an invalid argument.
func readOnly(data []string) bool {
	for _, o := range data {
		var st unix.Statfs_t
		if upper, ok := strings.CutPrefix(o, "upperdir="); ok && unix.Statfs(upper, &st) == nil {
			return st.Flags&unix.ST_RDONLY != 0
		}
	}
	return false
}

// mountShort mounts an overlay whose many lower directories do not fit into one page of options:
// they are named below their common directory, by a thread that works there.
func mountShort(data []string, call func(data []string) error) (err error) {
	short, dir := shorten(data)
	if dir == "" {
		return call(data)
	}
	thread.Run(func() { // its working directory ends with it
		if err = unix.Unshare(unix.CLONE_FS); err != nil {
			err = fmt.Errorf("leave working directory: %w", err)
		} else if err = unix.Chdir(dir); err != nil {
			err = &os.PathError{Op: "chdir", Path: dir, Err: err}
		} else {
			err = call(short)
		}
	})
	return err
}

// shorten names the lower directories below their common one, which it returns, "" without one.
func shorten(data []string) (short []string, dir string) {
	for i, o := range data {
		list, ok := strings.CutPrefix(o, "lowerdir=")
		if !ok {
			continue
		}
		lowers := strings.Split(list, ":")
		dir = commonDir(lowers)
		if dir == "" || dir == "/" {
			return nil, ""
		}
		for j := range lowers {
			lowers[j] = strings.TrimPrefix(lowers[j], dir+"/")
		}
		short = append([]string(nil), data...)
		short[i] = "lowerdir=" + strings.Join(lowers, ":")
	}
	return short, dir
}

func commonDir(paths []string) string {
	dir := filepath.Dir(paths[0])
	for _, p := range paths[1:] {
		for dir != "/" && dir != "." && !strings.HasPrefix(p, dir+"/") {
			dir = filepath.Dir(dir)
		}
	}
	if dir == "." {
		return ""
	}
	return dir
}

// UnmountRoot unmounts everything at and below a bundle's rootfs. It is idempotent.
func UnmountRoot(dir string) error {
	root := filepath.Join(dir, RootfsName)
	for {
		err := unix.Unmount(root, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) { // mounts below it, or a process that has not quite gone
			err = unix.Unmount(root, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		switch {
		case err == nil: // another one may lie beneath
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // no mount there
			return nil
		default:
			return fmt.Errorf("unmount %q: %w", root, err)
		}
	}
}
