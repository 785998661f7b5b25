// Package facts looks up what the pure package spec must know about the machine: its kernel's
// powers, and the files and devices that a container's configuration names.
package facts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/pkg/apparmor"
	"github.com/containerd/containerd/v2/pkg/cap"
	"github.com/containerd/containerd/v2/pkg/seccomp"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/host/cgroup"
	"github.com/sunaba-project/sunaba/host/oomscore"
)

const cgroupRoot = "/sys/fs/cgroup"

// Host looks at the machine once; the answer holds while this process lives. RecursiveReadOnly
// tells of the kernel only: a caller clears it for a handler that lacks it. AppArmorDefault,
// AppArmorLoaded, Devices, CPUs and MemoryNodes are left empty: the first is the caller's choice,
// the others change (see LoadedProfiles, HostDevices and Online).
func Host() (spec.Host, error) {
	name, err := os.Hostname()
	if err != nil {
		return spec.Host{}, fmt.Errorf("read host name: %w", err)
	}
	caps, err := capabilities()
	if err != nil {
		return spec.Host{}, err
	}
	h := spec.Host{
		Hostname:          name,
		Capabilities:      capabilityNames(caps),
		CgroupV2:          cgroup.Unified(),
		MinOOMScoreAdj:    -1000,
		RecursiveReadOnly: hasMountSetattr(),
		NoSeccomp:         !seccomp.IsEnabled(),
		AppArmor:          apparmor.HostSupports(),
	}
	if caps&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		// The kernel's own lower bound cannot be read; what this process has is known to be allowed.
		if h.MinOOMScoreAdj, err = oomscore.Get(os.Getpid()); err != nil {
			return spec.Host{}, fmt.Errorf("read own oom_score_adj: %w", err)
		}
	}
	h.SwapAccounting, h.Hugetlb = controllers(h.CgroupV2)
	return h, nil
}

// Online adds the processors and memory nodes that are online now, which changes. A kernel without
// NUMA has node 0.
func Online(h spec.Host) spec.Host {
	list := func(file, otherwise string) string {
		data, err := os.ReadFile(file)
		if err != nil {
			return otherwise
		}
		return strings.TrimSpace(string(data))
	}
	h.CPUs, h.MemoryNodes = list("/sys/devices/system/cpu/online", ""), list("/sys/devices/system/node/online", "0")
	return h
}

// capabilities returns those that this process can hand on: permitted and within its bounding set.
func capabilities() (uint64, error) {
	status, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	defer status.Close()
	sets, err := cap.ParseProcPIDStatus(status)
	if err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	if _, told := sets[cap.Bounding]; !told {
		return 0, errors.New("read capabilities: /proc/self/status does not tell them")
	}
	return sets[cap.Permitted] & sets[cap.Bounding], nil
}

// capabilityNames are the names of a set, of an empty one none and not nil. Capabilities without a
// name are left out.
func capabilityNames(set uint64) []string {
	names, _ := cap.FromBitmap(set)
	return append([]string{}, names...)
}

// controllers tells whether swap and huge pages can be limited.
func controllers(v2 bool) (swap, hugetlb bool) {
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	if !v2 {
		return exists(filepath.Join(cgroupRoot, "memory/memory.memsw.limit_in_bytes")), exists(filepath.Join(cgroupRoot, "hugetlb"))
	}
	data, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		return false, false
	}
	for _, name := range strings.Fields(string(data)) {
		hugetlb = hugetlb || name == "hugetlb"
	}
	// The root has no memory.swap.max, any cgroup below it does.
	found, err := filepath.Glob(filepath.Join(cgroupRoot, "*/memory.swap.max"))
	return err == nil && len(found) > 0, hugetlb
}

// hasMountSetattr asks for an impossible change: only a kernel without the
// call says that there is no such call.
func hasMountSetattr() bool {
	err := unix.MountSetattr(-1, "", 0, &unix.MountAttr{})
	return !errors.Is(err, unix.ENOSYS)
}
