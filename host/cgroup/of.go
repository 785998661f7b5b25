package cgroup

import (
	"fmt"

	"github.com/opencontainers/cgroups"
)

// Of returns the path of a process's group: of the memory controller, or of the unified hierarchy.
func Of(pid int) (string, error) {
	groups, err := cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	for _, controller := range []string{"memory", ""} {
		if path := groups[controller]; path != "" {
			return path, nil
		}
	}
	return "", fmt.Errorf("cgroup of process %d: unknown", pid)
}
