package cgroup

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Of returns the path of a process's group: of the memory controller, or of the unified hierarchy.
func Of(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", err
	}
	unified := ""
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		for _, controller := range strings.Split(fields[1], ",") {
			if controller == "memory" {
				return fields[2], nil
			}
		}
		if fields[0] == "0" {
			unified = fields[2]
		}
	}
	if unified == "" {
		return "", fmt.Errorf("cgroup of process %d: unknown", pid)
	}
	return unified, nil
}
