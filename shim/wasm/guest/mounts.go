package guest

import (
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// devices are the nodes a guest finds in a tmpfs at /dev.
var devices = []string{"null", "zero", "full", "random", "urandom"}

// plan is what a mount's options say.
type plan struct {
	bind, recursive     bool
	set, setRecursively uint64 // mount attributes
	propagation         uint64
	data                []string // options of a tmpfs
}

// attributes are the options that become mount attributes; "r" before one makes it recursive.
// Their opposites are the default or cannot be had (suid, dev, exec).
var attributes = map[string]uint64{
	"ro":          unix.MOUNT_ATTR_RDONLY,
	"nosuid":      unix.MOUNT_ATTR_NOSUID,
	"nodev":       unix.MOUNT_ATTR_NODEV,
	"noexec":      unix.MOUNT_ATTR_NOEXEC,
	"noatime":     unix.MOUNT_ATTR_NOATIME,
	"strictatime": unix.MOUNT_ATTR_STRICTATIME,
	"nodiratime":  unix.MOUNT_ATTR_NODIRATIME,
	"nosymfollow": unix.MOUNT_ATTR_NOSYMFOLLOW,
}

// propagations: a guest cannot mount, so that all it may want is to see what the host mounts.
var propagations = map[string]uint64{
	"private": unix.MS_PRIVATE, "rprivate": unix.MS_PRIVATE,
	"slave": unix.MS_SLAVE, "rslave": unix.MS_SLAVE,
	"shared": unix.MS_SLAVE, "rshared": unix.MS_SLAVE,
	"unbindable": unix.MS_PRIVATE, "runbindable": unix.MS_PRIVATE,
}

// tmpfsOptions are passed on to a tmpfs.
var tmpfsOptions = map[string]bool{"mode": true, "size": true, "uid": true, "gid": true, "nr_inodes": true, "nr_blocks": true}

func planMount(m link.Mount) plan {
	p := plan{set: strict, propagation: unix.MS_PRIVATE}
	p.bind, p.recursive = m.Bind()
	mode := false
	for _, o := range m.Options {
		key, _, _ := strings.Cut(o, "=")
		switch {
		case o == "bind", o == "rbind":
		case attributes[o] != 0:
			p.set |= attributes[o]
		case strings.HasPrefix(o, "r") && attributes[o[1:]] != 0:
			p.setRecursively |= attributes[o[1:]]
		case propagations[o] != 0:
			p.propagation = propagations[o]
		case tmpfsOptions[key]:
			p.data = append(p.data, o)
			mode = mode || key == "mode"
		}
	}
	if !mode {
		p.data = append(p.data, "mode=1777")
	}
	return p
}

// skipped are file systems that a WASI guest has no use for.
var skipped = map[string]bool{"proc": true, "sysfs": true, "cgroup": true, "cgroup2": true, "mqueue": true, "devpts": true}

// makeMount makes one mount of the container below rootfs.
func (p *process) makeMount(rootfs *tree, m link.Mount) error {
	plan := planMount(m)
	switch {
	case plan.bind:
		source, err := p.nextTree()
		if err != nil {
			return err
		}
		defer source.close()
		return bind(rootfs, source, m, plan)
	case m.Type == "tmpfs":
		return p.mountTmpfs(rootfs, m, plan)
	case skipped[m.Type]:
		return nil
	default:
		return faultf(link.Precondition, "file systems of type %q are not mounted for a wasm guest", m.Type)
	}
}

func bind(rootfs, source *tree, m link.Mount, p plan) error {
	var st unix.Stat_t
	if err := unix.Fstat(source.fd, &st); err != nil {
		return fmt.Errorf("stat source: %w", err)
	}
	// Below a recursive bind only what must hold everywhere is set on every mount.
	if err := source.setattr(unix.MountAttr{Attr_set: strict | p.setRecursively, Propagation: p.propagation}, true); err != nil {
		return err
	}
	if rest := p.set &^ (strict | p.setRecursively); rest != 0 {
		attr := unix.MountAttr{Attr_set: rest}
		if rest&(unix.MOUNT_ATTR_NOATIME|unix.MOUNT_ATTR_STRICTATIME) != 0 {
			attr.Attr_clr = unix.MOUNT_ATTR__ATIME
		}
		if err := source.setattr(attr, false); err != nil {
			return err
		}
	}
	at, err := rootfs.place(m.Destination, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	if err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	defer at.close()
	return source.attach(at.fd, "")
}

func (p *process) mountTmpfs(rootfs *tree, m link.Mount, plan plan) error {
	t, err := newTmpfs(plan.data, int(strict))
	if err != nil {
		return err
	}
	defer t.close()
	at, err := rootfs.place(m.Destination, true)
	if err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	defer at.close()
	if err := t.attach(at.fd, ""); err != nil {
		return err
	}
	if path.Clean(m.Destination) == "/dev" {
		if err := p.room.addDevices(t); err != nil {
			return err
		}
	}
	if rest := plan.set &^ strict; rest != 0 {
		return t.setAttr(rest&unix.MOUNT_ATTR_RDONLY, false)
	}
	return nil
}

// addDevices binds the host's harmless device nodes into a tmpfs. They are the only mounts where
// device files work.
func (r *room) addDevices(dev *tree) error {
	for _, name := range devices {
		source := r.devices[name]
		if source == nil {
			return faultf(link.Precondition, "add device %q: the host has none, or it was mounted already", name)
		}
		delete(r.devices, name)
		err := source.setAttr(unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, false)
		if err == nil {
			err = bindFile(dev, name, source)
		}
		source.close()
		if err != nil {
			return fmt.Errorf("add device %q: %w", name, err)
		}
	}
	return nil
}

func bindFile(dir *tree, name string, source *tree) error {
	at, err := dir.create(name, false)
	if err != nil {
		return err
	}
	defer at.close()
	return source.attach(at.fd, "")
}
