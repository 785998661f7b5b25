package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/process"
)

// Tree is processes that belong together, by descent. They are stopped when they are added, so that
// none is started meanwhile, and held by descriptors: a pid of the tree is no other process's. The
// zero value is empty.
type Tree struct {
	held map[int]int // pid to pidfd
}

// Descent is where a process comes from, by pids.
type Descent struct{ Parent, Group, Session int }

// Add adds one process, and says where it comes from. ESRCH if it has ended.
func (t *Tree) Add(pid int) (Descent, error) {
	fd, from, err := look(pid)
	if err != nil {
		return from, err
	}
	return from, t.hold(pid, fd)
}

// Has says whether the process with this pid belongs to the tree.
func (t *Tree) Has(pid int) bool {
	_, held := t.held[pid]
	return held
}

// Grow adds the processes of a group that belong, until all of them are in the tree. An
// ended context ends the search.
func (t *Tree) Grow(ctx context.Context, group *Group, belongs func(pid int, from Descent) bool) error {
	for grown := true; grown && ctx.Err() == nil; {
		grown = false
		pids, err := group.Pids()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if t.Has(pid) {
				continue
			}
			fd, from, err := look(pid)
			if errors.Is(err, unix.ESRCH) {
				continue
			}
			if err != nil {
				return err
			}
			if !belongs(pid, from) {
				unix.Close(fd)
				continue
			}
			if err := t.hold(pid, fd); err != nil {
				return err
			}
			grown = true
		}
	}
	return nil
}

// Kill kills all of the tree, which is empty then.
func (t *Tree) Kill() error {
	var errs []error
	for pid, fd := range t.held {
		if err := process.Signal(fd, unix.SIGKILL); err != nil {
			errs = append(errs, fmt.Errorf("kill process %d: %w", pid, err))
		}
		unix.Close(fd)
	}
	t.held = nil
	return errors.Join(errs...)
}

// hold takes over the pidfd of a process, which it stops.
func (t *Tree) hold(pid, fd int) error {
	if t.held == nil {
		t.held = make(map[int]int)
	}
	t.held[pid] = fd
	if err := process.Signal(fd, unix.SIGSTOP); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	return nil
}

// look opens a process and reads where it comes from. ESRCH if it has ended.
func look(pid int) (pidfd int, from Descent, err error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, from, fmt.Errorf("open process %d: %w", pid, err)
	}
	if from, err = DescentOf(pid); err != nil {
		unix.Close(fd)
	}
	return fd, from, err
}

// DescentOf reads where a process comes from. ESRCH if it has ended and was reaped.
func DescentOf(pid int) (from Descent, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) {
		return from, unix.ESRCH
	}
	if err != nil { // ESRCH if it ends just now
		return from, err
	}
	// The second field, the name, is in parentheses and may hold anything. The third is the state.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	ids := [3]*int{&from.Parent, &from.Group, &from.Session}
	if len(fields) <= len(ids) {
		return from, fmt.Errorf("process %d: its stat has %d fields", pid, len(fields))
	}
	for i, id := range ids {
		if *id, err = strconv.Atoi(fields[i+1]); err != nil {
			return from, fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return from, nil
}
