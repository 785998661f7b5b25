// Package systemd asks systemd over D-Bus for slices and scopes, which are cgroups of its own. It
// is for the daemon: the shim's engines have their libraries for that.
package systemd

import (
	"context"
	"fmt"
	"math"
	"path"
	"strings"
	"time"

	units "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/cgroups/systemd"

	"github.com/sunaba-project/sunaba/host/cgroup"
)

// callTime ends a call to systemd that is not answered.
const callTime = 30 * time.Second

// Runs says whether systemd runs this machine.
func Runs() bool { return systemd.IsRunningSystemd() }

// Slice is a unit that holds other units.
type Slice struct {
	name string
	unit cgroups.Manager
}

const sliceSuffix = ".slice"

// OpenSlice returns a slice, which need not exist, by its name, such as "a-b.slice".
func OpenSlice(name string) (*Slice, error) { return openSlice(name, nil) }

// OpenWeighedSlice is OpenSlice with processor shares, as version 1 counts them, that the slice
// gets when it is created. systemd ignores them where the slice exists, and drop-ins go before
// them.
func OpenWeighedSlice(name string, shares uint64) (*Slice, error) {
	property, value := "CPUShares", shares
	if cgroup.Unified() {
		property, value = "CPUWeight", cgroup.Weight(shares)
	}
	return openSlice(name, []units.Property{{Name: property, Value: dbus.MakeVariant(value)}})
}

func openSlice(name string, properties []units.Property) (*Slice, error) {
	name = path.Base(name)
	above := "-" + sliceSuffix // the root: without one it would be system.slice
	if i := strings.LastIndex(strings.TrimSuffix(name, sliceSuffix), "-"); i > 0 {
		above = name[:i] + sliceSuffix
	}
	unit, err := manager.New(&cgroups.Cgroup{
		Name: name, Parent: above, Systemd: true, SystemdProps: properties, Resources: &cgroups.Resources{SkipDevices: true},
	})
	if err != nil {
		return nil, fmt.Errorf("open slice %q: %w", name, err)
	}
	return &Slice{name, unit}, nil
}

// Create creates the slice. One that exists is no error.
func (s *Slice) Create() error {
	if err := s.unit.Apply(-1); err != nil {
		return fmt.Errorf("make slice %q: %w", s.name, err)
	}
	return nil
}

// Limit sets the limits of a slice that exists, all of them, as Group.Limit of package cgroup does.
func (s *Slice) Limit(l cgroup.Limits) error {
	if err := s.unit.Set(l.Resources(cgroup.Unified())); err != nil {
		return fmt.Errorf("limit cgroup %q: %w", s.name, err)
	}
	return nil
}

// Remove removes the slice. A missing one is no error.
func (s *Slice) Remove() error {
	if err := s.unit.Destroy(); err != nil {
		return fmt.Errorf("remove slice %q: %w", s.name, err)
	}
	return nil
}

// LimitMemory limits the memory of a slice that exists, in bytes, until the machine restarts; 0 is
// no limit.
func LimitMemory(slice string, memory uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	name, value := "MemoryLimit", memory
	if cgroup.Unified() {
		name = "MemoryMax"
	}
	if memory == 0 {
		value = math.MaxUint64
	}
	bus, err := units.NewWithContext(ctx)
	if err != nil {
		return fmt.Errorf("limit memory of slice %q: %w", slice, err)
	}
	defer bus.Close()
	if err := bus.SetUnitPropertiesContext(ctx, slice, true, units.Property{Name: name, Value: dbus.MakeVariant(value)}); err != nil {
		return fmt.Errorf("limit memory of slice %q: %w", slice, err)
	}
	return nil
}

// Scope is a unit of processes that systemd did not start.
type Scope struct {
	path string
	unit cgroups.Manager
}

// OpenScope returns a scope, which need not exist, by its OCI cgroupsPath "slice:prefix:name".
func OpenScope(cgroupsPath string) (*Scope, error) {
	slice, rest, _ := strings.Cut(cgroupsPath, ":")
	prefix, name, _ := strings.Cut(rest, ":")
	unit, err := manager.New(&cgroups.Cgroup{
		Name: name, ScopePrefix: prefix, Parent: slice, Systemd: true, Resources: &cgroups.Resources{SkipDevices: true},
	})
	if err != nil {
		return nil, fmt.Errorf("open scope %q: %w", cgroupsPath, err)
	}
	return &Scope{cgroupsPath, unit}, nil
}

// Place moves a process into the scope, which systemd creates with it if it does not exist.
func (s *Scope) Place(pid int) error {
	if err := s.unit.Apply(pid); err != nil {
		return fmt.Errorf("place process %d in scope %q: %w", pid, s.path, err)
	}
	return nil
}

// Remove removes the scope. A missing one is no error.
func (s *Scope) Remove() error {
	if err := s.unit.Destroy(); err != nil {
		return fmt.Errorf("remove scope %q: %w", s.path, err)
	}
	return nil
}
