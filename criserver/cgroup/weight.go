package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	units "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"github.com/opencontainers/cgroups"
)

const (
	ownParent = "/" + prefix         // holds the pods that came without a parent, driver cgroupfs
	ownSlice  = prefix + sliceSuffix // the same for systemd
)

// ownShares is the weight of all pods that came without a parent, together, as version 1 counts: that of one process for
// each processor, as the kubelet weighs the cgroup of its pods. With the kernel's default all of them would count as much
// as one single process beside them, and a start would wait for whatever else the machine does.
func ownShares() uint64 {
	const most = 1 << 18 // the kernel's limit
	return min(defaultShares*uint64(runtime.NumCPU()), most)
}

// weigh gives a folder that was just made for our own pods its weight. One that is there already keeps what it has: its
// owner may have chosen it.
func (h *Hierarchy) weigh(dir string) error {
	name, value := "cpu.shares", ownShares()
	if h.Unified != "" {
		name, value = "cpu.weight", cgroups.ConvertCPUSharesToCgroupV2Value(value)
	}
	// Only the hierarchy of the cpu controller has the file. It must not be made where there is none.
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(strconv.FormatUint(value, 10))
	return err
}

// weighSlice is weigh for systemd. The weight is a property of the slice's making: systemd ignores it where the slice is there
// already, and drop-ins go before it. It is done once by each server: the slice stays until the machine restarts.
func (m *Manager) weighSlice() error {
	m.slicing.Lock()
	defer m.slicing.Unlock()
	if m.weighed {
		return nil
	}
	name, value := "CPUShares", ownShares()
	if m.Unified != "" {
		name, value = "CPUWeight", cgroups.ConvertCPUSharesToCgroupV2Value(value)
	}
	unit, err := m.slice(ownSlice, units.Property{Name: name, Value: dbus.MakeVariant(value)})
	if err != nil {
		return err
	}
	if err := unit.Apply(-1); err != nil {
		return fmt.Errorf("make slice %q: %w", ownSlice, err)
	}
	m.weighed = true
	return nil
}
