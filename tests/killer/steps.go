package killer

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// kind says how a system call is understood.
type kind int

const (
	always   kind = iota // it is a step, and is about no path
	path                 // it is a step; arg is the number of the argument that is a path
	file                 // it is a step; arg is that of a descriptor
	writes               // a step if the descriptor arg is a socket or a file, but not the log
	opens                // a step if it makes or empties a file
	forks                // a step if it makes a process and not a thread
	forksNew             // the same, by a structure
)

type call struct {
	name string
	kind kind
	arg  int
}

// calls are the system calls that others can see something of.
var calls = map[uint64]call{
	unix.SYS_OPENAT:            {"openat", opens, 1},
	unix.SYS_MKDIRAT:           {"mkdirat", path, 1},
	unix.SYS_MKNODAT:           {"mknodat", path, 1},
	unix.SYS_UNLINKAT:          {"unlinkat", path, 1},
	unix.SYS_SYMLINKAT:         {"symlinkat", path, 2},
	unix.SYS_LINKAT:            {"linkat", path, 3},
	unix.SYS_RENAMEAT:          {"renameat", path, 3},
	unix.SYS_RENAMEAT2:         {"renameat2", path, 3},
	unix.SYS_FCHMODAT:          {"fchmodat", path, 1},
	unix.SYS_FCHOWNAT:          {"fchownat", path, 1},
	unix.SYS_FSYNC:             {"fsync", file, 0},
	unix.SYS_FDATASYNC:         {"fdatasync", file, 0},
	unix.SYS_SYNCFS:            {"syncfs", file, 0},
	unix.SYS_TRUNCATE:          {"truncate", path, 0},
	unix.SYS_FTRUNCATE:         {"ftruncate", file, 0},
	unix.SYS_MOUNT:             {"mount", path, 1},
	unix.SYS_UMOUNT2:           {"umount2", path, 0},
	unix.SYS_MOVE_MOUNT:        {"move_mount", path, 3},
	unix.SYS_OPEN_TREE:         {"open_tree", path, 1},
	unix.SYS_MOUNT_SETATTR:     {"mount_setattr", path, 1},
	unix.SYS_SETNS:             {"setns", file, 0},
	unix.SYS_UNSHARE:           {"unshare", always, 0},
	unix.SYS_BIND:              {"bind", file, 0},
	unix.SYS_CONNECT:           {"connect", file, 0},
	unix.SYS_SENDTO:            {"sendto", file, 0},
	unix.SYS_SENDMSG:           {"sendmsg", file, 0},
	unix.SYS_WRITE:             {"write", writes, 0},
	unix.SYS_PWRITE64:          {"pwrite64", writes, 0},
	unix.SYS_WRITEV:            {"writev", writes, 0},
	unix.SYS_KILL:              {"kill", always, 0},
	unix.SYS_PIDFD_SEND_SIGNAL: {"pidfd_send_signal", always, 0},
	unix.SYS_CLONE:             {"clone", forks, 0},
	unix.SYS_CLONE3:            {"clone3", forksNew, 0},
}

// step says whether a system call is a step, and which.
func (w *watcher) step(tid int, i *info) (Step, bool) {
	c, ok := calls[i.nr]
	if !ok {
		return Step{}, false
	}
	s := Step{Call: c.name}
	switch arg := i.args[c.arg]; c.kind {
	case path:
		s.On = w.text(arg)
	case file:
		s.On = w.descriptor(tid, arg)
	case writes:
		s.On = w.descriptor(tid, arg)
		if arg <= 2 || !strings.HasPrefix(s.On, "socket") && !strings.HasPrefix(s.On, "/") || s.On == os.DevNull {
			return s, false
		}
	case opens:
		s.On = w.text(arg)
		if i.args[2]&(unix.O_CREAT|unix.O_TRUNC) == 0 {
			return s, false
		}
	case forks:
		return s, arg&unix.CLONE_THREAD == 0
	case forksNew:
		return s, w.word(arg)&unix.CLONE_THREAD == 0
	}
	return s, true
}

// descriptor is what a descriptor stands for: a path, or "socket".
func (w *watcher) descriptor(tid int, fd uint64) string {
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(fd)))
	if err != nil {
		return fmt.Sprintf("descriptor %d", int32(fd))
	}
	if kind, _, numbered := strings.Cut(target, ":["); numbered {
		return kind
	}
	return target
}
