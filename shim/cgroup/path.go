package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Unified says whether the machine has the unified hierarchy and no other.
func Unified() bool { return is(mountPoint, unix.CGROUP2_SUPER_MAGIC) }

func is(path string, magic int64) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && int64(s.Type) == magic
}

// Resolve turns an OCI cgroupsPath into a path below the hierarchies' mount points. For the systemd
// driver "slice:prefix:name" is meant. A relative path gives "": it is below the runtime's own group, see Of.
func Resolve(cgroupsPath string, systemd bool) string {
	if !systemd {
		if !filepath.IsAbs(cgroupsPath) {
			return ""
		}
		return filepath.Clean(cgroupsPath)
	}
	parts := strings.Split(cgroupsPath, ":")
	if len(parts) != 3 {
		return ""
	}
	slice, prefix, name := parts[0], parts[1], parts[2]
	if slice == "" {
		slice = "system.slice"
	}
	switch {
	case strings.HasSuffix(name, ".slice"):
	case prefix == "":
		name += ".scope"
	default:
		name = prefix + "-" + name + ".scope"
	}
	return filepath.Join(expandSlice(slice), name)
}

// expandSlice turns a slice's name into its path: "a-b.slice" lies at /a.slice/a-b.slice.
func expandSlice(slice string) string {
	name := strings.TrimSuffix(slice, ".slice")
	if name == "-" || name == "" {
		return "/"
	}
	path := "/"
	for i := range len(name) {
		if name[i] == '-' {
			path = filepath.Join(path, name[:i]+".slice")
		}
	}
	return filepath.Join(path, name+".slice")
}

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
