package unpack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
	"golang.org/x/sys/unix"

	hostmount "github.com/sunaba-project/sunaba/host/mount"
)

// MaxLayers is how many layers an image may have: overlayfs puts a writable
// directory upon 500 others (OVL_MAX_STACK), whatever the kernel.
const MaxLayers = 500

// readFlags are the mount options of what is mounted for reading.
var readFlags = []string{"ro", "nodev", "nosuid", "noexec"}

// mountPoints are directories that layers are mounted at for reading.
type mountPoints struct{ mounts string }

// setOptions finds out what overlays need on this machine.
func (s *records) setOptions() {
	if needed, err := overlayutils.NeedsUserXAttr(s.root); err != nil {
		s.logger.Warn("failed to find out whether overlays need the option userxattr", "error", err)
	} else if needed {
		s.options = append(s.options, "userxattr")
	}
	if _, err := os.Stat("/sys/module/overlay/parameters/index"); err == nil {
		s.options = append(s.options, "index=off")
	}
}

// mountsOf returns what is to be mounted for a root, or for a view of layers that has no folder.
//
// # Errors
//
// ErrNotFound if the layers are not all there.
func (s *records) mountsOf(f folder) ([]mount.Mount, error) {
	layers, err := s.chain(f.Parent)
	if err != nil {
		return nil, err
	}
	var options, lower []string
	for _, l := range layers {
		lower = append(lower, s.upper(l))
	}
	for i, label := range []string{uidmapLabel, gidmapLabel} {
		if mapping := f.Labels[label]; mapping != "" {
			options = append(options, []string{"uidmap=", "gidmap="}[i]+mapping)
		}
	}
	access := "rw"
	if f.View {
		access = "ro"
	}
	switch {
	case len(lower) == 0:
		return []mount.Mount{{Type: "bind", Source: s.upper(f), Options: append(options, access, "rbind")}}, nil
	case len(lower) == 1 && f.View:
		return []mount.Mount{{Type: "bind", Source: lower[0], Options: append(options, access, "rbind")}}, nil
	case !f.View:
		options = append(options, "workdir="+filepath.Join(s.dir(f), "work"), "upperdir="+s.upper(f))
	}
	options = append(append(options, "lowerdir="+strings.Join(lower, ":")), s.options...)
	return []mount.Mount{{Type: "overlay", Source: "overlay", Options: options}}, nil
}

// withMounts calls fn with a directory that shows mounts, for reading.
func (s mountPoints) withMounts(mounts []mount.Mount, fn func(dir string) error) error {
	return s.mounted(readOnly(mounts), fn)
}

// mounted calls fn with a directory that shows mounts as they are.
func (s mountPoints) mounted(mounts []mount.Mount, fn func(dir string) error) (err error) {
	if len(mounts) == 1 && mounts[0].Type == "bind" {
		return fn(mounts[0].Source)
	}
	if top, below, ok := split(mounts); ok {
		return s.mounted(below, func(dir string) error {
			return s.mounted(upon(top, dir), fn)
		})
	}
	dir, err := os.MkdirTemp(s.mounts, "")
	if err != nil {
		return fmt.Errorf("create mount point: %w", err)
	}
	defer func() { err = errors.Join(err, removeMount(dir)) }()
	if err := mountAll(mounts, dir); err != nil {
		return fmt.Errorf("mount layers: %w", err)
	}
	return fn(dir)
}

// split takes the topmost directory from an overlay that has one more than there
// may be: a root of an image of MaxLayers layers, for reading.
func split(mounts []mount.Mount) (top string, below []mount.Mount, ok bool) {
	if len(mounts) != 1 || mounts[0].Type != "overlay" {
		return "", nil, false
	}
	m := mounts[0]
	i := slices.IndexFunc(m.Options, func(o string) bool { return strings.HasPrefix(o, "lowerdir=") })
	if i < 0 || strings.Count(m.Options[i], ":") < MaxLayers {
		return "", nil, false
	}
	top, rest, _ := strings.Cut(strings.TrimPrefix(m.Options[i], "lowerdir="), ":")
	m.Options = slices.Clone(m.Options)
	m.Options[i] = "lowerdir=" + rest
	return top, []mount.Mount{m}, true
}

// upon is an overlay of one directory upon another, for reading.
func upon(top, below string) []mount.Mount {
	return []mount.Mount{{Type: "overlay", Source: "overlay", Options: append([]string{"lowerdir=" + top + ":" + below}, readFlags...)}}
}

// readOnly makes overlay mounts without a writable directory: that becomes the
// topmost of those below.
func readOnly(mounts []mount.Mount) []mount.Mount {
	out := slices.Clone(mounts)
	for i, m := range out {
		var upper string
		var options []string
		for _, o := range m.Options {
			if dir, ok := strings.CutPrefix(o, "upperdir="); ok {
				upper = dir + ":"
			} else if !strings.HasPrefix(o, "workdir=") && !strings.HasPrefix(o, "uidmap=") && !strings.HasPrefix(o, "gidmap=") {
				options = append(options, o) // who files belong to in a container does not matter here
			}
		}
		for j, o := range options {
			if dirs, ok := strings.CutPrefix(o, "lowerdir="); ok {
				options[j] = "lowerdir=" + upper + dirs
			}
		}
		out[i].Options = append(options, readFlags...)
	}
	return out
}

func removeMount(dir string) error {
	if err := mount.UnmountAll(dir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %q: %w", dir, err)
	}
	// Not RemoveAll: should the unmount have left something, it stays.
	if err := os.Remove(dir); err != nil {
		return fmt.Errorf("remove mount point: %w", err)
	}
	return nil
}

func (s mountPoints) removeMounts() error {
	entries, err := os.ReadDir(s.mounts)
	if err != nil {
		return fmt.Errorf("list mount points: %w", err)
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, removeMount(filepath.Join(s.mounts, e.Name())))
	}
	return errors.Join(errs...)
}

// mountAll is mount.All, also for overlays of so many layers that their names do not fit into the
// one page that mount(2) takes.
func mountAll(mounts []mount.Mount, target string) error {
	if len(mounts) != 1 || mounts[0].Type != "overlay" || len(strings.Join(mounts[0].Options, ",")) < os.Getpagesize() {
		return mount.All(mounts, target)
	}
	flags, data, err := hostmount.ParseOptions(mounts[0].Options)
	if err != nil {
		return err
	}
	err = hostmount.Overlay(data, flags, target)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return mount.All(mounts, target) // a kernel before 6.8; the names may fit below their common folder
	}
	return err
}
