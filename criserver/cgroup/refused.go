package cgroup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
)

// Refused tells of limits that the kernel has refused, as it does with less memory than is in use,
// or with processors that the cgroup above does not have. The runtime or the library that wrote
// them has a text of its own for it, with the name of the cgroup's file. message holds the
// CRI's field and is put in front. Other errors stay as they are.
//
// # Errors
//
// ErrFailedPrecondition.
func Refused(message string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
		return err
	}
	text := err.Error()
	if strings.Contains(strings.ToLower(text), "no such file") { // the container has ended
		return err
	}
	for _, f := range []struct{ words, field string }{
		{"memory.memsw.limit_in_bytes", "memory_swap_limit_in_bytes"},
		{"memory.swap.max", "memory_swap_limit_in_bytes"},
		{"memory.limit_in_bytes", "memory_limit_in_bytes"},
		{"memory.max", "memory_limit_in_bytes"},
		{"unable to set memory limit", "memory_limit_in_bytes"}, // runc and its library
		{"rejecting memory", "memory_limit_in_bytes"},           // they, with version 2
		{"cpuset.cpus", "cpuset_cpus"},
		{"cpuset.mems", "cpuset_mems"},
		{"cpu.cfs_quota_us", "cpu_quota"},
		{"cpu.max", "cpu_quota"},
		{"cpu.cfs_period_us", "cpu_period"},
		{"cpu.shares", "cpu_shares"},
		{"cpu.weight", "cpu_shares"},
		{"hugetlb.", "hugepage_limits"},
	} {
		if strings.Contains(text, f.words) {
			return fmt.Errorf("%s.%s: %w: %w", message, f.field, err, errdefs.ErrFailedPrecondition)
		}
	}
	return err
}
