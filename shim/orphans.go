package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/cgroup"
)

// endExecs kills what a dead shim had executed in a container, with what that started as far as its parents live: the sessions are gone. The
// parent of such a process is the keeper now. In a container with a PID namespace of its own it is that of nothing else but
// init; elsewhere it is of what left its own parent too, so only those that are recorded are meant.
func endExecs(ctx context.Context, group *cgroup.Group, init int, recorded []int, ownPids bool) error {
	heir := os.Getppid()
	tree := map[int]int{} // pid to pidfd
	defer func() {
		for _, fd := range tree {
			unix.Close(fd)
		}
	}()
	for grown := true; grown && ctx.Err() == nil; {
		grown = false
		pids, err := group.Pids()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if _, known := tree[pid]; known || pid == init {
				continue
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue // it has ended
			}
			parent := parentOf(pid)
			_, child := tree[parent]
			if !child && (parent != heir || !ownPids && !slices.Contains(recorded, pid)) {
				unix.Close(fd)
				continue
			}
			tree[pid], grown = fd, true
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

// parentOf is a process's parent, 0 if it has ended.
func parentOf(pid int) int {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The second field, the name, is in parentheses and may hold anything. The fourth is the parent.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}
