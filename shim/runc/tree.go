package runc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/cgroup"
)

// killTree kills a process of a group and all that it started, as far as the kernel still knows that it did: its
// descendants, and everybody in its process group or in a session that one of these leads, also where the parent is gone. A
// daemon, which has left its parent and its session, is not among them.
//
// They are stopped first, so that none is started meanwhile. A process that has ended is no error.
func killTree(ctx context.Context, group *cgroup.Group, top int) error {
	tree := map[int]int{} // pid to pidfd
	defer func() {
		for _, fd := range tree {
			unix.Close(fd)
		}
	}()
	if err := hold(tree, top); err != nil {
		return err
	}
	own, err := descent(top)
	if err != nil {
		return nil // it has ended
	}
	common := own.group // the runtime's, or its own where the runtime gave it a session
	if common == unix.Getpgrp() {
		common = top
	}
	for ctx.Err() == nil {
		pids, err := group.Pids()
		if err != nil {
			return err
		}
		grown := false
		for _, pid := range pids {
			if _, known := tree[pid]; known {
				continue
			}
			of, err := descent(pid)
			if err != nil {
				continue // it has ended
			}
			_, child := tree[of.parent]
			if _, led := tree[of.session]; !child && !led && of.group != common {
				continue
			}
			if err := hold(tree, pid); err != nil {
				return err
			}
			grown = true
		}
		if !grown {
			break
		}
	}
	var errs []error
	for pid, fd := range tree {
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("kill process %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// hold stops a process and adds it to the tree.
func hold(tree map[int]int, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	tree[pid] = fd
	if err := unix.PidfdSendSignal(fd, syscall.SIGSTOP, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	return nil
}

// lineage is where a process comes from.
type lineage struct{ parent, group, session int }

func descent(pid int) (lineage, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return lineage{}, err
	}
	// The second field, the name, is in parentheses and may hold anything. The third is the state.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 4 {
		return lineage{}, fmt.Errorf("process %d: its stat has %d fields", pid, len(fields))
	}
	var ids [3]int
	for i := range ids {
		if ids[i], err = strconv.Atoi(fields[i+1]); err != nil {
			return lineage{}, err
		}
	}
	return lineage{parent: ids[0], group: ids[1], session: ids[2]}, nil
}
