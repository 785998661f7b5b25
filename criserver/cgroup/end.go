package cgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sunaba-project/sunaba/host/process"
)

// End kills every process in a leaf but the given ones and the calling one, and returns when there is none left. A missing leaf is
// no error.
//
// In version 1 a process is in the leaf as long as one of its threads is. Whoever has a process born there enters with a thread,
// see Born, which may not have ended yet.
//
// # Errors
//
// The context's, if a process does not end in time.
func (m *Manager) End(ctx context.Context, leaf string, but ...int) error {
	_, err := m.endEach(ctx, leaf, m.pids, but)
	return err
}

// EndAll is End for a parent and all that is below it. It returns the names of the processes that it ended, as the kernel
// knows them (comm of proc(5)).
func (m *Manager) EndAll(ctx context.Context, parent string, but ...int) (ended []string, err error) {
	return m.endEach(ctx, parent, m.pidsBelow, but)
}

// endEach ends the processes that list finds in a cgroup, except the given ones and the calling one, until there is none any more.
func (m *Manager) endEach(ctx context.Context, cgroup string, list func(path string) ([]int, error), but []int) (ended []string, err error) {
	but = append(but, os.Getpid())
	for {
		all, err := list(m.Path(cgroup))
		pids := slices.DeleteFunc(slices.Clone(all), func(pid int) bool { return slices.Contains(but, pid) })
		if err != nil || len(pids) == 0 {
			return ended, err
		}
		for _, pid := range pids {
			if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
				ended = append(ended, strings.TrimSpace(string(name)))
			}
		}
		if m.Unified != "" && len(pids) == len(all) {
			// One step for those that are just being started too. Before Linux 5.14 there is no such file.
			_ = os.WriteFile(m.File(m.Path(cgroup), "", "cgroup.kill"), []byte("1"), 0)
		}
		for _, pid := range pids {
			if err := process.Kill(ctx, pid, nil); err != nil {
				return ended, fmt.Errorf("empty cgroup %q: %w", cgroup, err)
			}
		}
	}
}

// pidsBelow are the processes in a cgroup and in those below it.
func (h *Hierarchy) pidsBelow(cgroup string) ([]int, error) {
	all, err := h.pids(cgroup)
	if err != nil {
		return nil, err
	}
	for _, root := range h.all() {
		inner, err := os.ReadDir(filepath.Join(root, cgroup))
		if missing(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list cgroups below %q: %w", cgroup, err)
		}
		for _, one := range inner {
			if !one.IsDir() {
				continue
			}
			pids, err := h.pidsBelow(filepath.Join(cgroup, one.Name()))
			if err != nil {
				return nil, err
			}
			all = append(all, pids...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// pids are the processes in a cgroup, in any hierarchy: one that was just being moved is in some of them only.
func (h *Hierarchy) pids(cgroup string) ([]int, error) {
	var pids []int
	for _, root := range h.all() {
		data, err := os.ReadFile(filepath.Join(root, cgroup, "cgroup.procs"))
		if missing(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list processes of cgroup %q: %w", cgroup, err)
		}
		for field := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}
