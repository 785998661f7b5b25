package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// MappedName is the folder of a bundle below which volumes lie that show other owners than the disk
// has, and for a moment the layers of the root filesystem.
const MappedName = "mapped"

// UserNamespace is the path of the user namespace that a container joins, "" if it joins none.
func UserNamespace(spec *specs.Spec) string {
	if spec.Linux == nil {
		return ""
	}
	for _, ns := range spec.Linux.Namespaces {
		if ns.Type == specs.UserNamespace {
			return ns.Path
		}
	}
	return ""
}

// MapVolumes makes the sources of those bind mounts whose owners are to be mapped and names them in
// the specification, which it writes anew: few OCI runtimes can do this. The container must join a
// user namespace; its mappings are used. Mounts below a source keep their owners. On error nothing
// stays mounted.
//
// # Errors
//
// ErrNotImplemented without a user namespace to join, or where the file system cannot show other
// owners.
func MapVolumes(dir string, spec *specs.Spec) error {
	userns, changed := UserNamespace(spec), false
	for i, m := range spec.Mounts {
		if len(m.UIDMappings) == 0 && len(m.GIDMappings) == 0 {
			continue
		}
		if userns == "" {
			return errors.Join(fmt.Errorf("map owners of mount %q: the container joins no user namespace: %w", m.Destination, errdefs.ErrNotImplemented), UnmapVolumes(dir))
		}
		target := filepath.Join(dir, MappedName, strconv.Itoa(i))
		if err := mapOwners(m.Source, target, userns, slices.Contains(m.Options, "rbind")); err != nil {
			return errors.Join(fmt.Errorf("map owners of mount %q: %w", m.Destination, err), UnmapVolumes(dir))
		}
		spec.Mounts[i].Source, spec.Mounts[i].UIDMappings, spec.Mounts[i].GIDMappings = target, nil, nil
		changed = true
	}
	if !changed {
		return nil
	}
	if err := replaceJSON(dir, ConfigName, spec); err != nil {
		return errors.Join(err, UnmapVolumes(dir))
	}
	return nil
}

// UnmapVolumes unmounts what MapVolumes mounted. It is idempotent.
func UnmapVolumes(dir string) error { return unmountBelow(filepath.Join(dir, MappedName)) }

// unmountBelow unmounts and removes everything in a folder, and the folder. One that is not there
// is no error.
func unmountBelow(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := unmap(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}

func unmap(target string) error {
	for {
		err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) { // no mount there
			return os.Remove(target)
		}
		if err != nil {
			return fmt.Errorf("unmount %q: %w", target, err)
		}
	}
}

// mapOwners shows source at target, which it makes, with the owners that the ids on the disk have
// in a user namespace.
func mapOwners(source, target, userns string, recursive bool) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	ns, err := unix.Open(userns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: userns, Err: err}
	}
	defer unix.Close(ns)
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, flags)
	if err != nil {
		return fmt.Errorf("clone mount of %q: %w", source, err)
	}
	defer unix.Close(tree)
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns)}
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, attr)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("kernel or file system of %q cannot show other owners (%w): %w", source, err, errdefs.ErrNotImplemented)
	}
	if err != nil {
		return fmt.Errorf("map owners of %q: %w", source, err)
	}
	if err := mountPoint(target, info.IsDir()); err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return errors.Join(fmt.Errorf("mount %q at %q: %w", source, target, err), os.Remove(target))
	}
	return nil
}

// mountPoint makes a folder or an empty file, below a folder that a mapped root may pass.
func mountPoint(target string, folder bool) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o711); err != nil {
		return err
	}
	if folder {
		return os.Mkdir(target, 0o711)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// takeMapping takes the options uidmap= and gidmap= from an overlay's, as containerd's snapshotters
// put them there.
func takeMapping(options []string) (rest []string, mapped bool) {
	for _, o := range options {
		if strings.HasPrefix(o, "uidmap=") || strings.HasPrefix(o, "gidmap=") {
			mapped = true
			continue
		}
		rest = append(rest, o)
	}
	return rest, mapped
}

// mountMapped mounts an overlay whose layers show other owners, by way of a mapped mount of the
// folder that holds them all; what the container writes is on the disk with the owners it has
// outside.
func mountMapped(m Mount, dir, root, userns string) (err error) {
	if m.Type == "bind" {
		return mount(m, root) // an image without layers: an empty folder that belongs to the mapped root already
	}
	if m.Type != "overlay" {
		return fmt.Errorf("mount %s %q with mapped owners: %w", m.Type, m.Source, errdefs.ErrNotImplemented)
	}
	if userns == "" {
		return fmt.Errorf("mount root filesystem with mapped owners: the container joins no user namespace: %w", errdefs.ErrNotImplemented)
	}
	for i, o := range m.Options {
		list, ok := strings.CutPrefix(o, "lowerdir=")
		if !ok {
			continue
		}
		lowers := strings.Split(list, ":")
		common := commonDir(lowers)
		if common == "" {
			return fmt.Errorf("mount root filesystem with mapped owners: layers %q have no common folder: %w", list, errdefs.ErrInvalidArgument)
		}
		layers := filepath.Join(dir, MappedName, "layers")
		if err := mapOwners(common, layers, userns, false); err != nil {
			return err
		}
		// The overlay has mounts of its own of the layers once it is mounted.
		defer func() { err = errors.Join(err, unmap(layers), removeEmpty(filepath.Dir(layers))) }()
		for j, lower := range lowers {
			lowers[j] = filepath.Join(layers, strings.TrimPrefix(lower, common))
		}
		m.Options = slices.Clone(m.Options)
		m.Options[i] = "lowerdir=" + strings.Join(lowers, ":")
	}
	return mount(m, root)
}

func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}
