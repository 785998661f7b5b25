package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// cgroupFiles are those that say what a container and its pod may use, by controller of version 1;
// "" is version 2.
var cgroupFiles = map[string][]string{
	"cpu":    {"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"},
	"memory": {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.soft_limit_in_bytes"},
	"pids":   {"pids.max"},
	"cpuset": {"cpuset.cpus", "cpuset.mems"},
	"":       {"cpu.weight", "cpu.max", "memory.max", "memory.min", "memory.low", "memory.high", "memory.swap.max", "memory.oom.group", "pids.max"},
}

// readCgroups notes the limits of a process' cgroups, and those of the pod above them.
func readCgroups(facts map[string]string, area string, pid int) error {
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		return err
	}
	facts[area+".oom_score_adj"] = strings.TrimSpace(string(score))
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			dir := filepath.Join("/sys/fs/cgroup", controller, fields[2])
			for _, file := range cgroupFiles[controller] {
				err = errors.Join(err, readValue(facts, area+".container."+file, filepath.Join(dir, file)))
				err = errors.Join(err, readValue(facts, area+".pod."+file, filepath.Join(filepath.Dir(dir), file)))
			}
		}
	}
	return err
}

func readValue(facts map[string]string, key, path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel need not have it
	}
	facts[key] = strings.TrimSpace(string(data))
	return err
}
