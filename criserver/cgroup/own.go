package cgroup

import (
	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/systemd"
)

// LimitOwn limits the memory of all pods that came without a parent, together, in bytes; 0 is no
// limit. It holds for the cgroup that there is and for those that this Manager creates.
//
// # Errors
//
// The kernel's: less memory than is in use (version 1). The limit holds for what is created then.
func (m *Manager) LimitOwn(memory uint64) error {
	m.ownMemory.Store(memory)
	if m.Driver == Systemd {
		return m.limitOwnSlice(memory)
	}
	group := m.Group(ownParent)
	if !group.Exists() {
		return nil
	}
	return cgroup.LimitMemory(group.Dir("memory"), group.Unified(), memory)
}

// limitOwnSlice sets the limit of the slice, which it creates only to set one.
func (m *Manager) limitOwnSlice(memory uint64) error {
	if memory == 0 && !m.Group(ownSlice).Exists() {
		return nil
	}
	if err := m.createOwnSlice(); err != nil {
		return err
	}
	return systemd.LimitMemory(ownSlice, memory)
}
