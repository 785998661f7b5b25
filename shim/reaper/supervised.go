package reaper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/process"
	"github.com/sunaba-project/sunaba/shim/shared/supervisor"
)

// Supervisor is told how children end, and reaps those of shims that have died. *supervisor.Link is
// one.
type Supervisor interface {
	Report(e supervisor.Exit) error
	Watch(pid int) error
	Claim(pid int) error
	Exit(pid int) <-chan supervisor.Exit
}

// NewSupervised is New for a shim with a supervisor: that learns of an exit before the child is
// reaped, so that there is no moment at which nobody but this process knows it.
func NewSupervised(k Supervisor) (*Reaper, error) { return start(k) }

// Adopt returns the process with this pid, which was the child of an earlier shim with the same
// supervisor and never becomes one of this process. It may have ended meanwhile. When the
// supervisor has exited, it ends with supervisor.Unknown whenever it does.
func (r *Reaper) Adopt(pid int) (*Child, error) {
	if r.supervisor == nil {
		return nil, errors.New("adopt process: there is no supervisor")
	}
	if err := r.supervisor.Claim(pid); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	c := &Child{Pid: pid, Done: done, done: done}
	handle, err := unix.PidfdOpen(pid, 0)
	switch {
	case err == nil:
		c.handle = os.NewFile(uintptr(handle), "process")
	case !errors.Is(err, unix.ESRCH):
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	go r.follow(c)
	return c, nil
}

// Guard has the supervisor remember how a process ends, or has ended: a child of this process or
// one that was adopted.
func (r *Reaper) Guard(pid int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if supervisor.IsChild(pid) {
		return r.supervisor.Watch(pid)
	}
	return r.supervisor.Claim(pid) // reaped and reported, or the supervisor's
}

// follow ends an adopted child when the supervisor says so.
func (r *Reaper) follow(c *Child) {
	e, known := <-r.supervisor.Exit(c.Pid)
	if !known {
		if c.handle != nil {
			_ = process.Wait(context.Background(), int(c.handle.Fd())) // nobody knows how it ended
		}
		e = supervisor.Exit{Code: supervisor.Unknown, At: time.Now()}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.code, c.at, c.over = e.Code, e.At, true
	if c.handle != nil {
		c.handle.Close()
	}
	close(c.done)
}

// signalAdopted sends a signal to whom it is meant for, whoever has the pid. The caller holds r.mu.
func (c *Child) signalAdopted(sig unix.Signal) error {
	if c.over || c.handle == nil {
		return os.ErrProcessDone
	}
	err := unix.PidfdSendSignal(int(c.handle.Fd()), sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// childInfo is Linux's siginfo_t of a child that has ended, as it is on 64-bit machines but MIPS.
type childInfo struct {
	signo, errno, code, _ int32
	pid                   int32
	uid                   uint32
	status                int32
}

// Codes of siginfo_t.
const childExited = 1 // CLD_EXITED; what else there is names a signal

// next looks at a child that has ended and does not reap it.
func next() (e exit, found bool) {
	for {
		var raw unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &raw, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		info := (*childInfo)(unsafe.Pointer(&raw))
		if err != nil || info.signo == 0 {
			return exit{}, false
		}
		code := int(info.status)
		if info.code != childExited {
			code += 128
		}
		return exit{pid: int(info.pid), code: code, at: time.Now()}, true
	}
}

// reapSupervised is reap for a shim with a supervisor. The caller holds r.mu.
func (r *Reaper) reapSupervised() {
	for {
		e, found := next()
		if !found {
			return
		}
		_ = r.supervisor.Report(supervisor.Exit{PID: e.pid, Code: e.code, At: e.at}) // without a supervisor it is as it is without one
		for {
			if _, err := unix.Wait4(e.pid, nil, unix.WNOHANG, nil); err != unix.EINTR {
				break
			}
		}
		r.deliver(e)
	}
}
