// Package cgroup is the daemon's policy for cgroups: where those of a pod are, which driver creates
// them, and what they weigh. It creates and removes a pod's parent, if the client gave none, and
// the leaf that holds its shim and pause process. The engines create the cgroups of containers.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/process"
	"github.com/sunaba-project/sunaba/host/systemd"
)

// Limits bound a pod as a whole.
type Limits = cgroup.Limits

// Manager makes and removes the cgroups of pods.
type Manager struct {
	Layout
	*cgroup.Mounts

	slicing sync.Mutex
	weighed bool // our own slice has its weight
	// ownMemory is what LimitOwn was told last.
	ownMemory atomic.Uint64
}

// New finds the machine's cgroups. driver "auto" or "" is systemd where systemd runs the machine,
// else cgroupfs.
func New(driver string) (*Manager, error) {
	mounts, err := cgroup.Find()
	if err != nil {
		return nil, err
	}
	m := &Manager{Mounts: mounts}
	switch d := Driver(driver); d {
	case Cgroupfs:
		m.Driver = d
	case Systemd:
		if !systemd.Runs() {
			return nil, errors.New("cgroup driver systemd: systemd does not run this machine")
		}
		m.Driver = d
	case "", "auto":
		m.Driver = Cgroupfs
		if systemd.Runs() {
			m.Driver = Systemd
		}
	default:
		return nil, fmt.Errorf("cgroup driver %q is not known (known: auto, cgroupfs, systemd)", driver)
	}
	return m, nil
}

// Group is the cgroup of a parent or of a leaf.
func (m *Manager) Group(name string) *cgroup.Group { return m.Mounts.Group(m.Path(name)) }

// MakePod makes the parent of a pod's cgroups. One that exists is no error.
func (m *Manager) MakePod(parent string) error {
	if m.Driver != Systemd {
		return m.create(m.Group(parent))
	}
	if path.Dir(m.Path(parent)) == "/"+ownSlice {
		if err := m.createOwnSlice(); err != nil {
			return err
		}
	}
	slice, err := systemd.OpenSlice(parent)
	if err != nil {
		return err
	}
	return slice.Create()
}

// LimitPod sets the limits of a pod's cgroup, all of them: what was limited before and is not any
// more is unlimited again.
//
// # Errors
//
// The kernel's: less memory than is in use, or a quota below that of a cgroup inside (version 1).
func (m *Manager) LimitPod(parent string, l cgroup.Limits) error {
	if m.Driver != Systemd {
		return m.Group(parent).Limit(l)
	}
	slice, err := systemd.OpenSlice(parent)
	if err != nil {
		return err
	}
	return slice.Limit(l)
}

// RemovePod removes the parent of a pod's cgroups with all that is left below it. A missing one is
// no error.
func (m *Manager) RemovePod(parent string) error {
	if m.Driver != Systemd {
		err := m.Group(parent).Remove()
		m.prune()
		return err
	}
	slice, err := systemd.OpenSlice(parent)
	if err != nil {
		return err
	}
	return slice.Remove()
}

// Born prepares that the process that the calling thread starts next with attr is born in a leaf,
// which is created if it is missing. The thread must end thereafter. The caller calls release,
// unless it is nil, when the process has started. It is for cgroupfs: nothing has to be moved, for
// which the kernel would wait for all processors, many milliseconds.
func (m *Manager) Born(leaf string, attr *syscall.SysProcAttr) (release func(), err error) {
	group := m.Group(leaf)
	if err := m.create(group); err != nil {
		return nil, err
	}
	return group.Born(attr)
}

// End kills every process in a leaf or below it, except the given ones and the calling one, and
// returns when none is left. A missing leaf is no error.
//
// # Errors
//
// The context's, if a process does not exit in time.
func (m *Manager) End(ctx context.Context, leaf string, keep ...int) error {
	_, err := m.EndAll(ctx, leaf, keep...)
	return err
}

// EndAll is End for a parent and all that is below it. It returns the names of the processes that
// it killed, as the kernel knows them (comm of proc(5)).
func (m *Manager) EndAll(ctx context.Context, parent string, keep ...int) (names []string, err error) {
	return m.Group(parent).KillInAny(ctx, keep...)
}

// Place moves a process into a leaf, which is created if it is missing.
func (m *Manager) Place(leaf string, pid int) error {
	if m.Driver != Systemd {
		group := m.Group(leaf)
		if err := m.create(group); err != nil {
			return err
		}
		return group.JoinLimiting(pid)
	}
	scope, err := systemd.OpenScope(leaf)
	if err != nil {
		return err
	}
	return scope.Place(pid)
}

// PlaceFamily is Place for a process that may have started others already: they come along.
func (m *Manager) PlaceFamily(leaf string, pid int) error {
	if err := m.Place(leaf, pid); err != nil {
		return err
	}
	for _, child := range process.Children(pid) {
		if err := m.Group(leaf).JoinLimiting(child); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// RemoveShimLeaf is RemoveLeaf for a shim that pods shared.
func (m *Manager) RemoveShimLeaf(leaf string) error {
	err := m.RemoveLeaf(leaf)
	m.prune()
	return err
}

// RemoveLeaf removes a leaf. A missing one is no error.
func (m *Manager) RemoveLeaf(leaf string) error {
	if m.Driver != Systemd {
		return m.Group(leaf).Remove()
	}
	scope, err := systemd.OpenScope(leaf)
	if err != nil {
		return err
	}
	return scope.Remove()
}

// Leaves returns the ids of the containers (and of the sandbox, for its shim) that have a cgroup
// below a parent, in any hierarchy. A missing parent has none.
func (m *Manager) Leaves(parent string) ([]string, error) {
	var ids []string
	for _, root := range m.Roots() {
		entries, err := os.ReadDir(filepath.Join(root, m.Path(parent)))
		if err != nil && !cgroup.Missing(err) {
			return nil, fmt.Errorf("list cgroups below %q: %w", parent, err)
		}
		for _, e := range entries {
			if id := m.leafID(e.Name()); e.IsDir() && id != "" && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// prune removes the folder that holds our own pods' cgroups once it is empty. A busy one stays: it
// holds other pods, or another server's, which are in every hierarchy.
func (m *Manager) prune() {
	for _, folder := range []string{ownShims, ownParent} {
		for _, root := range m.Roots() {
			if err := unix.Rmdir(filepath.Join(root, folder)); err != nil && !cgroup.Missing(err) {
				return
			}
		}
	}
}
