package cgroup

import (
	"os"
	"path/filepath"
	"runtime"

	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/systemd"
)

const (
	ownParent = "/" + prefix         // holds the pods that came without a parent, driver cgroupfs
	ownSlice  = prefix + sliceSuffix // the same for systemd
)

// ownShares is the weight of all pods that came without a parent, together, as version 1 counts:
// that of one process for each processor, as the kubelet weighs the cgroup of its pods. With the
// kernel's default all of them would count as much as one single process beside them, and a start
// would wait for whatever else the machine does.
func ownShares() uint64 {
	const most = 1 << 18 // the kernel's limit
	return min(cgroup.DefaultShares*uint64(runtime.NumCPU()), most)
}

// create creates a cgroup in every hierarchy, with whatever is missing above it. The folder of our
// own pods gets its weight and its limit with its creation. One that exists keeps what it has: its
// owner may have chosen it.
func (m *Manager) create(group *cgroup.Group) error {
	return group.CreateWith(func(path, dir string) error {
		if path != ownParent {
			return nil
		}
		// In version 1, those below have its processors from the start, without a write.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.clone_children"), []byte("1"), 0) // version 2 has no such file
		if memory := m.ownMemory.Load(); memory > 0 {
			if err := cgroup.LimitMemory(dir, group.Unified(), memory); err != nil {
				return err
			}
		}
		return cgroup.Weigh(dir, group.Unified(), ownShares())
	})
}

// createOwnSlice creates the slice of our own pods with its weight. Each server does it once: the
// slice stays until the machine restarts.
func (m *Manager) createOwnSlice() error {
	m.slicing.Lock()
	defer m.slicing.Unlock()
	if m.weighed {
		return nil
	}
	slice, err := systemd.OpenWeighedSlice(ownSlice, ownShares())
	if err != nil {
		return err
	}
	if err := slice.Create(); err != nil {
		return err
	}
	m.weighed = true
	return nil
}
