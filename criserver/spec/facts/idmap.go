package facts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/host/mount"
)

// IDMappedMounts tries whether an overlay on the file system of dir, where the images are, can show
// its layers with other owners. That needs Linux 5.19 and a file system that takes part.
//
// # Errors
//
// Only what keeps it from being tried; that it cannot be done is no error.
func IDMappedMounts(dir string) (_ bool, err error) {
	if err := sweepTries(dir); err != nil {
		return false, fmt.Errorf("try idmapped mounts: %w", err)
	}
	work, err := os.MkdirTemp(dir, tryFolder)
	if err != nil {
		return false, fmt.Errorf("try idmapped mounts: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	for _, name := range []string{"lower", "upper", "work", "mapped", "merged"} {
		if err := os.Mkdir(filepath.Join(work, name), 0o711); err != nil {
			return false, fmt.Errorf("try idmapped mounts: %w", err)
		}
	}
	ids := netns.IDMap{Inside: 0, Outside: 65536, Length: 65536}
	var can bool
	if err := netns.WithUserNamespace(netns.UserOptions{UIDs: ids, GIDs: ids}, func(userns string) error {
		can, err = tryMapped(work, userns)
		return err
	}); err != nil {
		return false, nil // the kernel makes no user namespaces, or none for us
	}
	return can, nil
}

const tryFolder = "idmap-*"

// sweepTries removes what a try left that was cut short.
func sweepTries(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, tryFolder))
	if err != nil {
		return err
	}
	for _, work := range left {
		for _, name := range []string{"merged", "mapped"} {
			if err := mount.Detach(filepath.Join(work, name)); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(work); err != nil {
			return err
		}
	}
	return nil
}

// tryMapped mounts an overlay on a mapped mount, and unmounts both.
func tryMapped(work, userns string) (can bool, err error) {
	in := func(name string) string { return filepath.Join(work, name) }
	ns, err := unix.Open(userns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(ns)
	tree, err := unix.OpenTree(unix.AT_FDCWD, in("lower"), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return false, nil
	}
	defer unix.Close(tree)
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns)}
	if unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, attr) != nil ||
		unix.MoveMount(tree, "", unix.AT_FDCWD, in("mapped"), unix.MOVE_MOUNT_F_EMPTY_PATH) != nil {
		return false, nil
	}
	defer func() { err = errors.Join(err, unix.Unmount(in("mapped"), unix.MNT_DETACH)) }()
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", in("mapped"), in("upper"), in("work"))
	if unix.Mount("overlay", in("merged"), "overlay", 0, data) != nil {
		return false, nil
	}
	return true, unix.Unmount(in("merged"), unix.MNT_DETACH)
}
