package suites

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// lasting are the slices of pods' slices and of the shims that pods share. systemd keeps them, and
// to stop one could end a pod or a shim, of another server too, that is just being made.
var lasting = []string{"sunaba.slice", "sunaba-shims.slice", Unit}

// leftBehind lists what suites make on the machine and have to take away: cgroups with the
// project's name in theirs, and processes of its binaries.
func leftBehind() []string {
	var found []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // it went meanwhile, or is a file
		}
		if strings.HasPrefix(d.Name(), "sunaba") && !slices.Contains(lasting, d.Name()) {
			found = append(found, "cgroup "+path)
		}
		return nil
	})
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			continue
		}
		switch strings.TrimSuffix(filepath.Base(target), " (deleted)") {
		case "sunaba", "containerd-shim-sunaba-v1", "runc", "crun", "conmon":
			found = append(found, "process "+filepath.Base(filepath.Dir(link))+" "+target)
		}
	}
	slices.Sort(found)
	return found
}

// since lists what is left behind now and was not before. What has just ended gets a moment.
func since(before []string) []string {
	var fresh []string
	for range 30 {
		fresh = nil
		for _, name := range leftBehind() {
			if _, known := slices.BinarySearch(before, name); !known {
				fresh = append(fresh, name)
			}
		}
		if len(fresh) == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fresh
}
