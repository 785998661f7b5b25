package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/kernelfile"
	"github.com/sunaba-project/sunaba/host/process"
)

// Kill kills every process of the group and of those below it, except this one and those in keep,
// and returns when they have exited. It finds them in the hierarchy that stands for membership. A
// missing group is no error.
//
// # Errors
//
// The context's, if a process does not exit in time.
func (g *Group) Kill(ctx context.Context, keep ...int) error {
	_, err := kill(ctx, g, g.Pids, keep)
	return err
}

// KillInAny is Kill for the processes that are in the group in any hierarchy. It returns the names
// of those that it killed, as the kernel knows them (comm of proc(5)).
//
// In version 1 a process is in the group as long as one of its threads is. Whoever has a process
// born there enters with a thread, see EnterThread, which may not have ended yet.
func (g *Group) KillInAny(ctx context.Context, keep ...int) (names []string, err error) {
	return kill(ctx, g, g.PidsInAny, keep)
}

func kill(ctx context.Context, g *Group, list func() ([]int, error), keep []int) (names []string, err error) {
	for ctx.Err() == nil {
		pids, err := list()
		if err != nil {
			return names, err
		}
		var fds []int
		kept := false
		for _, pid := range pids {
			if pid == os.Getpid() || slices.Contains(keep, pid) {
				kept = true
				continue
			}
			fd, err := unix.PidfdOpen(pid, 0)
			switch {
			case err == nil:
				fds = append(fds, fd)
				if name := comm(pid); name != "" {
					names = append(names, name)
				}
			case errors.Is(err, unix.ESRCH):
			case len(fds) == 0:
				return names, fmt.Errorf("kill cgroup %q: open process %d: %w", g.path, pid, err)
			}
		}
		if len(fds) == 0 {
			return names, nil
		}
		if kept || !killAtOnce(g) {
			for _, fd := range fds {
				_ = process.Signal(fd, unix.SIGKILL) // those that are left are listed again
			}
		}
		_ = g.Thaw() // a process that version 1 has frozen would not exit
		waitAll(ctx, fds)
	}
	return names, fmt.Errorf("kill cgroup %q: %w", g.path, ctx.Err())
}

// comm is the name of a process, "" for one that has exited.
func comm(pid int) string {
	name, _ := kernelfile.ReadRecord(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(name)
}

// killAtOnce kills every process of the group and of those below it in one step, also one that is
// just being started. It returns false where the kernel cannot: in version 1, and before Linux
// 5.14.
func killAtOnce(g *Group) bool {
	return g.Unified() && write(g.File("", "cgroup.kill"), "1") == nil
}

// waitAll returns when all pidfds say that their process has exited, and closes them.
func waitAll(ctx context.Context, fds []int) {
	for _, fd := range fds {
		_ = process.Wait(ctx, fd) // the caller lists those that are left
		unix.Close(fd)
	}
}
