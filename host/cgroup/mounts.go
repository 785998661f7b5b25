package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Mounts are the mount points of the machine's cgroup hierarchies.
type Mounts struct {
	// Unified is the mount point of version 2 when it is the only one, else "".
	Unified string
	// V1 holds the mount point of every version 1 controller; named ones as "name=systemd".
	V1 map[string]string
	// Hybrid is the mount point of version 2 beside version 1, "" without one. Nothing is
	// limited there, but OCI runtimes create their containers' cgroups in it too, and crun only if
	// those above exist.
	Hybrid string
}

// Find reads the mount table.
func Find() (*Mounts, error) {
	table, err := mountinfo.GetMounts(unreachable)
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	return fromTable(table)
}

// Usual is Find without the mount table, which is long on a busy node: it looks below MountPoint
// only, where each folder has the name of its controllers.
func Usual() (*Mounts, error) {
	if Unified() {
		return &Mounts{Unified: MountPoint}, nil
	}
	entries, err := os.ReadDir(MountPoint)
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	m := &Mounts{V1: map[string]string{}}
	for _, e := range entries { // symbolic links ("cpu") point to a joint hierarchy ("cpu,cpuacct")
		point := filepath.Join(MountPoint, e.Name())
		switch {
		case !e.IsDir():
		case Is(point, unix.CGROUP_SUPER_MAGIC):
			for controller := range strings.SplitSeq(e.Name(), ",") {
				m.V1[controller] = point
			}
		case Is(point, unix.CGROUP2_SUPER_MAGIC):
			m.Hybrid = point
		}
	}
	if point, ok := m.V1["systemd"]; ok {
		delete(m.V1, "systemd")
		m.V1[systemdHierarchy] = point
	}
	if len(m.V1) == 0 {
		return nil, errors.New("find cgroups: no hierarchy is mounted")
	}
	return m, nil
}

// systemdHierarchy is the version 1 hierarchy without a controller in which systemd keeps its
// units.
const systemdHierarchy = "name=systemd"

// unreachable passes over what is not a hierarchy, and over those that another mount lies over.
func unreachable(m *mountinfo.Info) (skip, stop bool) {
	switch m.FSType {
	case "cgroup2":
		return !Is(m.Mountpoint, unix.CGROUP2_SUPER_MAGIC), false
	case "cgroup":
		return !Is(m.Mountpoint, unix.CGROUP_SUPER_MAGIC), false
	}
	return true, false
}

// fromTable takes the hierarchies from a mount table that holds nothing else.
func fromTable(table []*mountinfo.Info) (*Mounts, error) {
	m := &Mounts{V1: map[string]string{}}
	unified := ""
	for _, mount := range table {
		if mount.FSType == "cgroup2" {
			unified = cmp.Or(unified, mount.Mountpoint)
			continue
		}
		for opt := range strings.SplitSeq(mount.VFSOptions, ",") {
			if opt == "rw" || opt == "ro" || opt == "xattr" || opt == "clone_children" || strings.Contains(opt, "release_agent") {
				continue
			}
			if _, ok := m.V1[opt]; !ok {
				m.V1[opt] = mount.Mountpoint
			}
		}
	}
	if len(m.V1) > 0 {
		m.Hybrid = unified
		return m, nil
	}
	if unified == "" {
		return nil, errors.New("find cgroups: no cgroup file system is mounted")
	}
	m.Unified = unified
	return m, nil
}

// Has says whether a controller is there at all.
func (m *Mounts) Has(controller string) bool {
	if m.Unified != "" {
		return true
	}
	_, ok := m.V1[controller]
	return ok
}

// Roots are the mount points of all hierarchies in which there may be cgroups, each once.
func (m *Mounts) Roots() []string {
	if m.Hybrid == "" {
		return m.limiting()
	}
	return append(m.limiting(), m.Hybrid)
}

// limiting are the mount points of the hierarchies that have controllers or, of version 1, a name;
// each once.
func (m *Mounts) limiting() []string {
	if m.Unified != "" {
		return []string{m.Unified}
	}
	points := slices.Sorted(maps.Values(m.V1))
	return slices.Compact(points)
}

// root is the mount point of a controller's hierarchy, "" without one. The controller matters on
// version 1 only.
func (m *Mounts) root(controller string) string {
	if m.Unified != "" {
		return m.Unified
	}
	return m.V1[controller]
}

// Group returns the group at a path below the mount points. It need not exist.
func (m *Mounts) Group(path string) *Group {
	if !filepath.IsAbs(path) {
		path = "/" + path
	}
	return &Group{path: filepath.Clean(path), mounts: m}
}
