package cgroup

import (
	"fmt"
	"path/filepath"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
)

// Limits bound a pod as a whole. 0 is no limit.
type Limits struct {
	Shares        uint64 // of the processors, as version 1 counts them: 1024 is the kernel's default
	Quota, Period uint64 // of the processors, in microseconds
	Memory        uint64 // in bytes
}

// defaultShares is what a cgroup has that nobody gave any.
const defaultShares = 1024

// LimitPod sets the limits of a pod's cgroup, all of them: what was limited before and is not any more is free again.
//
// # Errors
//
// The kernel's: less memory than is in use, or a quota below that of a cgroup inside (version 1).
func (m *Manager) LimitPod(parent string, l Limits) error {
	r := &cgroups.Resources{SkipDevices: true, CpuShares: defaultShares, CpuQuota: -1, Memory: -1}
	if l.Shares > 0 {
		r.CpuShares = l.Shares
	}
	if l.Quota > 0 {
		r.CpuQuota, r.CpuPeriod = int64(l.Quota), l.Period
	}
	if l.Memory > 0 {
		r.Memory = int64(l.Memory)
	}
	if m.Unified != "" {
		r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(r.CpuShares)
	}
	unit, err := m.pod(parent)
	if err != nil {
		return err
	}
	if err := unit.Set(r); err != nil {
		return fmt.Errorf("limit cgroup %q: %w", parent, err)
	}
	return nil
}

// pod opens the cgroup of a pod that exists.
func (m *Manager) pod(parent string) (cgroups.Manager, error) {
	path := m.Path(parent)
	config := &cgroups.Cgroup{Path: path, Resources: &cgroups.Resources{SkipDevices: true}}
	var unit cgroups.Manager
	var err error
	switch {
	case m.Driver == Systemd:
		return m.slice(parent)
	case m.Unified != "":
		unit, err = fs2.NewManager(config, filepath.Join(m.Unified, path))
	default:
		unit, err = fs.NewManager(config, map[string]string{
			"cpu": m.File(path, "cpu", ""), "memory": m.File(path, "memory", ""),
		})
	}
	if err != nil {
		return nil, fmt.Errorf("open cgroup %q: %w", parent, err)
	}
	return unit, nil
}
