package cgroup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// What the kernel refuses is told with its field, whoever wrote the limit.
func TestRefused(t *testing.T) {
	for text, field := range map[string]string{
		"unable to set memory limit to 4096 (current usage: 434176, peak usage: 2236416)":                               "linux.memory_limit_in_bytes",
		"writing file `memory.limit_in_bytes`: Device or resource busy":                                                 "linux.memory_limit_in_bytes",
		`cannot write "1": write /sys/fs/cgroup/memory/a/memory.memsw.limit_in_bytes: device or resource busy`:          "linux.memory_swap_limit_in_bytes",
		`cannot write "1": write /sys/fs/cgroup/cpuset/a/cpuset.cpus: permission denied`:                                "linux.cpuset_cpus",
		"write `cpuset.mems`: Invalid argument":                                                                         "linux.cpuset_mems",
		`limit cgroup "/a": cannot write "5000": write /sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us: invalid argument`: "linux.cpu_quota",
		"open /sys/fs/cgroup/a/memory.max: no such file or directory":                                                   "",
		"the shim is not there": "",
	} {
		err := Refused("linux", errors.New(text))
		if field == "" && errdefs.IsFailedPrecondition(err) || field != "" && (!errdefs.IsFailedPrecondition(err) || !strings.HasPrefix(err.Error(), field+": ")) {
			t.Errorf("%q: %v, want field %q", text, err, field)
		}
	}
	late := fmt.Errorf("write memory.max: %w", context.DeadlineExceeded)
	if err := Refused("linux", late); err != late {
		t.Errorf("no time: %v", err)
	}
	if err := Refused("linux", nil); err != nil {
		t.Error(err)
	}
}
