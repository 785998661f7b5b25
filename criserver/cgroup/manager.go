package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	units "github.com/coreos/go-systemd/v22/dbus"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/cgroups/systemd"
)

// Manager makes and removes the cgroups of pods.
type Manager struct {
	Layout
	*Hierarchy

	slicing sync.Mutex
	weighed bool // our own slice has its weight
}

// New finds the machine's cgroups. driver "auto" or "" is systemd where systemd runs the machine, else cgroupfs.
func New(driver string) (*Manager, error) {
	h, err := Find()
	if err != nil {
		return nil, err
	}
	m := &Manager{Hierarchy: h}
	switch d := Driver(driver); d {
	case Cgroupfs:
		m.Driver = d
	case Systemd:
		if !systemd.IsRunningSystemd() {
			return nil, errors.New("cgroup driver systemd: systemd does not run this machine")
		}
		m.Driver = d
	case "", "auto":
		m.Driver = Cgroupfs
		if systemd.IsRunningSystemd() {
			m.Driver = Systemd
		}
	default:
		return nil, fmt.Errorf("cgroup driver %q is not known (known: auto, cgroupfs, systemd)", driver)
	}
	return m, nil
}

// MakePod makes the parent of a pod's cgroups. One that exists is no error.
func (m *Manager) MakePod(parent string) error {
	if m.Driver != Systemd {
		return m.mkdir(m.Path(parent))
	}
	if path.Dir(m.Path(parent)) == "/"+ownSlice {
		if err := m.weighSlice(); err != nil {
			return err
		}
	}
	unit, err := m.slice(parent)
	if err != nil {
		return err
	}
	if err := unit.Apply(-1); err != nil {
		return fmt.Errorf("make slice %q: %w", parent, err)
	}
	return nil
}

// RemovePod removes the parent of a pod's cgroups with all that is left below it. A missing one is no error.
func (m *Manager) RemovePod(parent string) error {
	if m.Driver != Systemd {
		err := m.remove(m.Path(parent))
		m.prune()
		return err
	}
	unit, err := m.slice(parent)
	if err != nil {
		return err
	}
	if err := unit.Destroy(); err != nil {
		return fmt.Errorf("remove slice %q: %w", parent, err)
	}
	return nil
}

// Born prepares that a process is born in a leaf, which is made if it is missing: the one that the calling thread starts next
// with attr. The thread has to end thereafter. release is called once the process is there. It is for cgroupfs: nothing has to
// be moved, for which the kernel would wait until all processors have taken notice, many milliseconds.
func (m *Manager) Born(leaf string, attr *syscall.SysProcAttr) (release func(), err error) {
	if err := m.mkdir(m.Path(leaf)); err != nil {
		return nil, err
	}
	if m.Unified == "" {
		return nil, m.enterThread(m.Path(leaf))
	}
	dir, err := os.Open(filepath.Join(m.Unified, m.Path(leaf)))
	if err != nil {
		return nil, err
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	return func() { dir.Close() }, nil
}

// Place moves a process into a leaf, which it makes if it is missing.
func (m *Manager) Place(leaf string, pid int) error {
	if m.Driver != Systemd {
		if err := m.mkdir(m.Path(leaf)); err != nil {
			return err
		}
		return m.place(m.Path(leaf), pid)
	}
	unit, err := m.scope(leaf)
	if err != nil {
		return err
	}
	if err := unit.Apply(pid); err != nil {
		return fmt.Errorf("place process %d in scope %q: %w", pid, leaf, err)
	}
	return nil
}

// PlaceFamily is Place for a process that may have started others already: they come along.
func (m *Manager) PlaceFamily(leaf string, pid int) error {
	if err := m.Place(leaf, pid); err != nil {
		return err
	}
	for _, child := range children(pid) {
		if err := m.place(m.Path(leaf), child); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// children are the processes that a process has started and that have not ended.
func children(pid int) []int {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	var pids []int
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
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
		return m.remove(m.Path(leaf))
	}
	unit, err := m.scope(leaf)
	if err != nil {
		return err
	}
	if err := unit.Destroy(); err != nil {
		return fmt.Errorf("remove scope %q: %w", leaf, err)
	}
	return nil
}

// Leaves returns the ids of the containers (and of the sandbox, for its shim) that have a cgroup below a parent, in any hierarchy. A
// missing parent has none.
func (m *Manager) Leaves(parent string) ([]string, error) {
	var ids []string
	for _, root := range m.all() {
		entries, err := os.ReadDir(filepath.Join(root, m.Path(parent)))
		if err != nil && !missing(err) {
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

// prune removes the folder that holds our own pods' cgroups once it is empty; busy ones stay: they hold other pods, or
// another server's.
func (m *Manager) prune() {
	for _, root := range m.all() {
		_ = os.Remove(filepath.Join(root, ownShims))
		_ = os.Remove(filepath.Join(root, prefix))
	}
}

// slice opens a slice. The properties are what systemd is told of it when it is made.
func (m *Manager) slice(parent string, made ...units.Property) (cgroups.Manager, error) {
	name := path.Base(parent)
	above := "-" + sliceSuffix // the root: without one it would be system.slice
	if i := strings.LastIndex(strings.TrimSuffix(name, sliceSuffix), "-"); i > 0 {
		above = name[:i] + sliceSuffix
	}
	unit, err := manager.New(&cgroups.Cgroup{Name: name, Parent: above, Systemd: true, SystemdProps: made, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		return nil, fmt.Errorf("open slice %q: %w", parent, err)
	}
	return unit, nil
}

func (m *Manager) scope(leaf string) (cgroups.Manager, error) {
	slice, rest, _ := strings.Cut(leaf, ":")
	pre, id, _ := strings.Cut(rest, ":")
	unit, err := manager.New(&cgroups.Cgroup{Name: id, ScopePrefix: pre, Parent: slice, Systemd: true, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		return nil, fmt.Errorf("open scope %q: %w", leaf, err)
	}
	return unit, nil
}
