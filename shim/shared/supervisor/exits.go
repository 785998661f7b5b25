package supervisor

import (
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/cgroup"
)

// maxLoose bounds how many exits are remembered that nobody has asked for.
const maxLoose = 256

// exits are how processes ended, as far as somebody may still ask.
type exits struct {
	watched map[int]*Exit // nil as long as they live
	loose   []loose       // of others, oldest first
	life    int           // counts shims
}

// loose is the exit of a process that was not watched. It may be watched yet: what a shim says
// comes after its death.
type loose struct {
	Exit
	life int // of the shim under which the supervisor itself reaped it, 0 = a shim reported it
}

// add takes an exit and says whether it is news. A second one of a pid that is watched is somebody
// else's, or the same again.
func (x *exits) add(e Exit, life int) bool {
	if known, watched := x.watched[e.PID]; watched {
		if known == nil {
			x.watched[e.PID] = &e
		}
		return known == nil
	}
	x.take(e.PID)
	if len(x.loose) == maxLoose {
		x.loose = append(x.loose[:0], x.loose[1:]...)
	}
	x.loose = append(x.loose, loose{e, life})
	return false
}

// take removes the loose exit of a pid.
func (x *exits) take(pid int) (loose, bool) {
	i := slices.IndexFunc(x.loose, func(l loose) bool { return l.PID == pid })
	if i < 0 {
		return loose{}, false
	}
	l := x.loose[i]
	x.loose = slices.Delete(x.loose, i, i+1)
	return l, true
}

// watch remembers how a child of the shim ends. With the shim dead, it may have ended already, as a
// child of this process. Else what was noticed of this pid is about an earlier process.
func (x *exits) watch(pid, shim int) {
	l, found := x.take(pid)
	x.watched[pid] = nil
	if found && l.life == x.life && !isAlive(shim) {
		x.watched[pid] = &l.Exit
	}
}

// claim is watch for a process of an earlier shim; shim is the calling one. It returns how the
// process ended, nil if it has not.
func (x *exits) claim(pid, shim int) *Exit {
	e, watched := x.watched[pid]
	if watched {
		return e
	}
	x.watched[pid] = nil
	l, found := x.take(pid)
	switch {
	case IsChild(pid):
	case found:
		x.watched[pid] = &l.Exit
	case x.isOrphan(pid, shim):
	default:
		x.watched[pid] = &Exit{PID: pid, Code: Unknown, At: time.Now()}
	}
	return x.watched[pid]
}

// isOrphan says whether a process was left by a dead shim's OCI runtime: it descends from this
// process, and neither from the shim nor from a container. The runtime of a dead shim exits with a
// delay. Until then it is the parent of init; then this process is.
func (x *exits) isOrphan(pid, shim int) bool {
	for self := os.Getpid(); pid > 1 && pid != shim; {
		from, err := cgroup.DescentOf(pid)
		if err != nil {
			return false
		}
		if from.Parent == self {
			return true
		}
		if _, container := x.watched[from.Parent]; container {
			return false // a new process has the pid
		}
		pid = from.Parent
	}
	return false
}

// ended lists the exits of what is watched, by pid.
func (x *exits) ended() []*Exit {
	var all []*Exit
	for _, pid := range slices.Sorted(maps.Keys(x.watched)) {
		if e := x.watched[pid]; e != nil {
			all = append(all, e)
		}
	}
	return all
}

// IsChild says whether pid is a child of this process that has not been reaped.
func IsChild(pid int) bool { return peek(pid, nil) == nil }

// isAlive says whether a child has not ended.
func isAlive(pid int) bool {
	var info unix.Siginfo
	return peek(pid, &info) == nil && info.Signo == 0
}

// peek looks at a child without reaping it. Nothing is written to info if it has not ended.
func peek(pid int, info *unix.Siginfo) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}
