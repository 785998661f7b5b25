package guest

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Names in the private root.
const (
	rootfsName = "rootfs"
	cacheName  = "cache"
)

// strict is set on every mount of a guest: nothing in it is executed or is a device, whatever the
// image says.
const strict = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC

// tree is an open directory or mount.
type tree struct{ fd int }

func (t *tree) close() { unix.Close(t.fd) }

// room is the private root of a container's first process, and what it kept of the host before it
// went there.
type room struct {
	root    *tree
	devices map[string]*tree // copies of the mounts of the host's harmless device nodes
}

// standBy is what a container's first process does before it knows its container: it moves into its
// private root.
func (p *process) standBy() error {
	// What the host mounts and unmounts still arrives where it is in sight; nothing propagates
	// back.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("part from the host's mounts: %w", err)
	}
	// Everything that has a path on the host is opened before the host is out of sight.
	r := &room{devices: make(map[string]*tree)}
	for _, name := range devices {
		if t, err := cloneTree("/dev/" + name); err == nil { // one that is missing is missed by who mounts a /dev
			r.devices[name] = t
		}
	}
	var err error
	if r.root, err = newTmpfs([]string{"mode=0755", "size=64k"}, strict); err != nil {
		return err
	}
	// Any directory serves as the place of the new root: the old one is unmounted.
	if err := r.root.attach(unix.AT_FDCWD, "/"); err != nil {
		return fmt.Errorf("attach private root: %w", err)
	}
	for _, name := range []string{rootfsName, cacheName} {
		if err := unix.Mkdirat(r.root.fd, name, 0o755); err != nil {
			return fmt.Errorf("make directory %q: %w", name, err)
		}
	}
	p.room = r
	return pivot(r.root)
}

// close lets go of what is not needed any more.
func (r *room) close() {
	r.root.close()
	for _, t := range r.devices {
		t.close()
	}
}

// layOut makes the container's tree in the private root from the trees that came with the
// configuration.
func (p *process) layOut() (rootfs, cache *tree, err error) {
	defer p.room.close()
	c := &p.config
	if cache, err = p.nextTree(); err == nil {
		err = cache.becomeEntry()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("take compiled module: %w", err)
	}
	if rootfs, err = p.takeRootfs(); err != nil {
		return nil, nil, err
	}
	for name, t := range map[string]*tree{rootfsName: rootfs, cacheName: cache} {
		if err := t.attach(p.room.root.fd, name); err != nil {
			return nil, nil, fmt.Errorf("attach %q: %w", name, err)
		}
	}
	for _, m := range c.Mounts {
		if err := p.makeMount(rootfs, m); err != nil {
			return nil, nil, fmt.Errorf("mount %q: %w", m.Destination, err)
		}
	}
	if c.ReadOnly || !c.Rootfs {
		// Only now: mount points had to be made.
		if err := rootfs.setAttr(unix.MOUNT_ATTR_RDONLY, false); err != nil {
			return nil, nil, fmt.Errorf("make root read-only: %w", err)
		}
	}
	return rootfs, cache, nil
}

// becomeEntry makes a compiled module's tree read-only. Its machine code can be mapped from there
// even if the host's mount is noexec, as far as the kernel lets us.
func (t *tree) becomeEntry() error {
	const attr = strict&^unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_RDONLY
	own := unix.MountAttr{Attr_set: attr, Attr_clr: unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE}
	if t.setattr(own, true) == nil {
		return nil
	}
	own.Attr_clr = 0
	return t.setattr(own, true)
}

// takeRootfs takes the container's root, to which the host's mounts may come, while what is mounted
// in it stays here.
func (p *process) takeRootfs() (*tree, error) {
	if !p.config.Rootfs {
		return newTmpfs([]string{"mode=0755", "size=1m"}, strict)
	}
	t, err := p.nextTree()
	if err == nil {
		err = t.setattr(unix.MountAttr{Attr_set: strict, Propagation: unix.MS_SLAVE}, true)
	}
	if err != nil {
		return nil, fmt.Errorf("take root file system: %w", err)
	}
	return t, nil
}

// pivot makes t the root of this process and lets go of the old one.
func pivot(t *tree) error {
	if err := unix.Fchdir(t.fd); err != nil {
		return fmt.Errorf("enter private root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("move root: %w", err)
	}
	// The old root lies on top of the new one's place.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the host's root: %w", err)
	}
	return os.Chdir("/")
}

// cloneTree returns a copy of the mount at a path of the host, attached nowhere.
func cloneTree(name string) (*tree, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: name, Err: err}
	}
	return &tree{fd}, nil
}

// newTmpfs returns a new tmpfs, attached nowhere. Options are "key=value".
func newTmpfs(options []string, attr int) (*tree, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open tmpfs: %w", err)
	}
	defer unix.Close(fs)
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return nil, fmt.Errorf("set tmpfs option %q: %w", o, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("make tmpfs: %w", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attr)
	if err != nil {
		return nil, fmt.Errorf("mount tmpfs: %w", err)
	}
	return &tree{fd}, nil
}

// setAttr sets mount attributes.
func (t *tree) setAttr(attr uint64, recursive bool) error {
	return t.setattr(unix.MountAttr{Attr_set: attr}, recursive)
}

func (t *tree) setattr(attr unix.MountAttr, recursive bool) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	if err := unix.MountSetattr(t.fd, "", flags, &attr); err != nil {
		return fmt.Errorf("set mount attributes: %w", err)
	}
	return nil
}

// attach puts the tree at a place. An empty name is the directory (or file) dir itself.
func (t *tree) attach(dir int, name string) error {
	flags := unix.MOVE_MOUNT_F_EMPTY_PATH
	if name == "" {
		flags |= unix.MOVE_MOUNT_T_EMPTY_PATH
	}
	if err := unix.MoveMount(t.fd, "", dir, name, flags); err != nil {
		return &os.PathError{Op: "move_mount", Path: name, Err: err}
	}
	return nil
}

// open resolves name as the guest would: with t as the root, whatever links and ".." say.
func (t *tree) open(name string, flags int) (*tree, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(t.fd, name, &how)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue // something was renamed meanwhile
		}
		if err != nil {
			return nil, &os.PathError{Op: "openat2", Path: name, Err: err}
		}
		return &tree{fd}, nil
	}
}

// place returns the mount point at name, making what is missing on the way: directories, and at the
// end a directory or an empty file.
func (t *tree) place(name string, dir bool) (*tree, error) {
	at, err := t.open(name, unix.O_PATH)
	if !errors.Is(err, unix.ENOENT) {
		return at, err
	}
	if at, err = t.open(".", unix.O_PATH|unix.O_DIRECTORY); err != nil {
		return nil, err
	}
	parts := strings.Split(strings.Trim(path.Clean("/"+name), "/"), "/")
	for i, part := range parts {
		next, err := t.open(path.Join(parts[:i+1]...), unix.O_PATH)
		if errors.Is(err, unix.ENOENT) {
			next, err = at.create(part, dir || i < len(parts)-1)
		}
		at.close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// create makes one entry of an open directory. A link of that name that leads nowhere is an error.
func (t *tree) create(name string, dir bool) (*tree, error) {
	if dir {
		if err := unix.Mkdirat(t.fd, name, 0o755); err != nil {
			return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
		}
	} else {
		fd, err := unix.Openat(t.fd, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return nil, &os.PathError{Op: "create", Path: name, Err: err}
		}
		unix.Close(fd)
	}
	fd, err := unix.Openat(t.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return &tree{fd}, nil
}
