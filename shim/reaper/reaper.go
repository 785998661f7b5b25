// Package reaper waits for every child of the shim in one place: for the programs it starts, for
// container processes that the kernel hands to it when their runtime has exited, and for orphans
// nobody asks about.
package reaper

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/shared/supervisor"
)

// keepUnclaimed bounds how many exits of unknown children are kept for a later Watch.
const keepUnclaimed = 256

// Reaper reaps all children of this process. Nothing else in the process may wait for children:
// exec.Cmd.Wait only after the child's exit was seen here.
type Reaper struct {
	signals    chan os.Signal
	done       chan struct{} // closed to end reaping
	ended      chan struct{} // closed when it has ended
	supervisor Supervisor    // nil without one

	mu        sync.Mutex // held across a fork and its registration, and across a reap and its delivery
	children  map[int]*Child
	unclaimed []exit // oldest first
}

type exit struct {
	pid  int
	code int // exit status verbatim, or 128 + signal
	at   time.Time
}

// Child is a process the reaper was asked about.
type Child struct {
	Pid  int
	Done <-chan struct{} // closed when the process has been reaped

	done chan struct{}
	code int
	at   time.Time

	handle *os.File // pidfd of one that was adopted, nil when that had ended
	over   bool     // it has ended
}

// Status is how the child ended: its exit status verbatim or 128 + signal, and when it was reaped.
// It is valid after Done.
func (c *Child) Status() (code int, at time.Time) { return c.code, c.at }

// New makes this process the subreaper of its descendants and starts to reap.
func New() (*Reaper, error) { return start(nil) }

func start(k Supervisor) (*Reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become subreaper: %w", err)
	}
	r := &Reaper{
		signals:    make(chan os.Signal, 1), // SIGCHLD does not count either: one in the channel stands for all
		done:       make(chan struct{}),
		ended:      make(chan struct{}),
		children:   make(map[int]*Child),
		supervisor: k,
	}
	signal.Notify(r.signals, unix.SIGCHLD)
	go r.run()
	return r, nil
}

// Close ends reaping. Children that run on are left alone, and whoever reaps after this gets their
// exits.
func (r *Reaper) Close() {
	signal.Stop(r.signals)
	close(r.done)
	<-r.ended
}

func (r *Reaper) run() {
	defer close(r.ended)
	for {
		select {
		case <-r.signals:
			r.reap()
		case <-r.done:
			return
		}
	}
}

// reap collects everything that has ended.
func (r *Reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.supervisor != nil {
		r.reapSupervised()
		return
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		r.deliver(exit{pid: pid, code: supervisor.Code(status), at: time.Now()})
	}
}

// deliver hands an exit to its child, or keeps it. The caller holds r.mu.
func (r *Reaper) deliver(e exit) {
	if c, ok := r.children[e.pid]; ok {
		delete(r.children, e.pid)
		c.end(e)
		return
	}
	if len(r.unclaimed) == keepUnclaimed {
		r.unclaimed = append(r.unclaimed[:0], r.unclaimed[1:]...)
	}
	r.unclaimed = append(r.unclaimed, e)
}

// Start starts a command whose end the reaper sees. The caller calls cmd.Process.Release when it
// has no more use for it, and cmd.Wait (after Done, ignoring its error) only if it gave the command
// writers or readers that need copying, or a context.
func (r *Reaper) Start(cmd *exec.Cmd) (*Child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return r.register(cmd.Process.Pid), nil
}

// Watch returns the child with this pid, which some other program started and which the kernel
// handed to us. An exit that was reaped before is not lost. A pid that is no child of ours and
// was never reaped gives a child that has ended with 255.
func (r *Reaper) Watch(pid int) *Child {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.children[pid]; ok {
		return c
	}
	// A child that is there, running or not yet reaped, is the one meant: what was kept under this
	// pid was an earlier process.
	here := supervisor.IsChild(pid)
	kept, found := r.take(pid)
	c := r.register(pid)
	if here {
		return c
	}
	delete(r.children, pid)
	if !found {
		kept = exit{pid: pid, code: supervisor.Unknown, at: time.Now()}
	}
	c.end(kept)
	return c
}

// register adds a child. The caller holds r.mu.
func (r *Reaper) register(pid int) *Child {
	r.take(pid)
	done := make(chan struct{})
	c := &Child{Pid: pid, Done: done, done: done}
	r.children[pid] = c
	return c
}

// take removes the youngest kept exit of pid, and all older ones with it. The caller holds r.mu.
func (r *Reaper) take(pid int) (last exit, found bool) {
	rest := r.unclaimed[:0]
	for _, e := range r.unclaimed {
		if e.pid == pid {
			last, found = e, true
			continue
		}
		rest = append(rest, e)
	}
	r.unclaimed = rest
	return last, found
}

func (c *Child) end(e exit) {
	c.code, c.at = e.code, e.at
	close(c.done)
}

// Signal sends sig to a child that has not been reaped, so that the pid cannot be anybody else's.
// os.ErrProcessDone when it has.
func (r *Reaper) Signal(c *Child, sig unix.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.handle != nil || c.over {
		return c.signalAdopted(sig)
	}
	if r.children[c.Pid] != c {
		return os.ErrProcessDone
	}
	err := unix.Kill(c.Pid, sig)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
