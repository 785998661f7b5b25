// Package supervisor is the parent of a shim that may die without its containers: it holds files
// that cannot be opened again (the shim's ends of the containers' pipes, terminals and links),
// reaps processes whose shim is dead, and starts a successor, to which it hands both.
//
// A process that Linux has to hand to a new parent goes to the nearest subreaper among its
// ancestors. As long as the shim lives that is the shim, thereafter the supervisor, also for
// processes that had ended and were not reaped. So the supervisor does nothing as long as the shim
// lives.
//
// It is a process of its own so that what kills a shim does not kill it: it reads no container's
// output and no client's request.
package supervisor

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options of a supervisor.
type Options struct {
	// Shim makes the command of a shim. The link is to be among its ExtraFiles; the shim gives it
	// to Open.
	Shim func(link *os.File) *exec.Cmd
	// Pause is how long a shim has to live before its successor is started at once. One that does
	// not is given a successor after Pause.
	Pause time.Duration
	// Settled is called when work is done: a good moment to return memory. It may be nil.
	Settled func()
	Logger  *slog.Logger
}

// Run starts a shim, and another one whenever that has died. It returns when a shim has ended with
// 0, as it does when it was told to and has no containers. SIGTERM and SIGINT are passed on to the
// shim.
//
// Nothing else in this process may wait for children.
func Run(o Options) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	if o.Settled == nil {
		o.Settled = func() {}
	}
	k := &supervisor{
		options: o, kept: map[string]message{}, exits: exits{watched: map[int]*Exit{}},
		children: make(chan os.Signal, 1), ends: make(chan os.Signal, 2),
	}
	signal.Notify(k.children, unix.SIGCHLD)
	signal.Notify(k.ends, unix.SIGTERM, unix.SIGINT)
	defer signal.Stop(k.children)
	defer signal.Stop(k.ends)
	defer k.release()
	for {
		started := time.Now()
		status, err := k.live()
		if err != nil {
			return err
		}
		if status.Exited() && status.ExitStatus() == 0 {
			return nil
		}
		o.Logger.Error("shim died", "status", Code(status), "signal", status.Signaled())
		if time.Since(started) < o.Pause {
			time.Sleep(o.Pause)
		}
	}
}

type supervisor struct {
	options  Options
	children chan os.Signal
	ends     chan os.Signal
	kept     map[string]message // by key
	exits    exits
}

// live is the life of one shim.
func (k *supervisor) live() (unix.WaitStatus, error) {
	ours, theirs, err := pair()
	if err != nil {
		return 0, err
	}
	conn, err := connection(ours)
	if err != nil {
		theirs.Close()
		return 0, err
	}
	defer conn.Close()
	cmd := k.options.Shim(theirs)
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return 0, fmt.Errorf("start shim: %w", err)
	}
	pid := cmd.Process.Pid
	_ = cmd.Process.Release() // reaped below, with all others
	out := newOutbox(conn)
	defer out.close()
	k.exits.life++
	k.handOver(out)
	in := make(chan message)
	go listen(conn, in, k.options.Logger)
	var status *unix.WaitStatus
	for status == nil || in != nil { // what it said last counts
		k.options.Settled()
		select {
		case m, more := <-in:
			if !more {
				in = nil
				break
			}
			k.take(m, pid, out)
		case <-k.children:
			if s := k.reap(pid, out); s != nil {
				status = s
			}
		case sig := <-k.ends:
			if status == nil {
				_ = unix.Kill(pid, sig.(unix.Signal)) // it exists: only this process reaps it
			}
		}
	}
	return *status, nil
}

// listen takes a shim's messages until it has exited.
func listen(conn *net.UnixConn, in chan<- message, log *slog.Logger) {
	defer close(in)
	packets := newReceiver(conn)
	for {
		m, err := packets.next()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				log.Debug("link failed", "error", err)
			}
			return
		}
		in <- m
	}
}

// take does what a shim asks for.
func (k *supervisor) take(m message, shim int, out *outbox) {
	switch {
	case m.Keep != "":
		old := k.kept[m.Keep]
		k.kept[m.Keep] = m
		old.close()
	case m.Drop != "":
		k.drop(m.Drop)
	case m.Watch != 0:
		k.exits.watch(m.Watch, shim)
	case m.Claim != 0:
		if e := k.exits.claim(m.Claim, shim); e != nil {
			out.put(message{Exit: e})
		}
	case m.Forget != 0:
		delete(k.exits.watched, m.Forget)
	case m.Exit != nil:
		k.exits.add(*m.Exit, 0)
	}
	if m.Keep == "" {
		m.close()
	}
}

func (k *supervisor) drop(key string) {
	for kept, old := range k.kept {
		if kept == key || strings.HasSuffix(key, "/") && strings.HasPrefix(kept, key) {
			delete(k.kept, kept)
			old.close()
		}
	}
}

// reap reaps all children that have exited. It returns the status of the shim if that is one.
func (k *supervisor) reap(shim int, out *outbox) (status *unix.WaitStatus) {
	for {
		var s unix.WaitStatus
		pid, err := unix.Wait4(-1, &s, unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || pid <= 0:
			return status
		case pid == shim:
			status = &s
			continue
		}
		if e := (Exit{PID: pid, Code: Code(s), At: time.Now()}); k.exits.add(e, k.exits.life) {
			out.put(message{Exit: &e})
		}
	}
}

// handOver tells a shim what its predecessor left.
func (k *supervisor) handOver(out *outbox) {
	for _, key := range slices.Sorted(maps.Keys(k.kept)) {
		out.put(k.kept[key])
	}
	for _, e := range k.exits.ended() {
		out.put(message{Exit: e})
	}
	out.put(message{Ready: true, Life: k.exits.life})
}

// release closes what is kept, when no successor will need it.
func (k *supervisor) release() {
	for _, m := range k.kept {
		m.close()
	}
}

// Code is how a process ended, as in Exit: its exit status verbatim, or 128 + signal.
func Code(s unix.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// outbox sends in the background: a shim that does not read must not stop the supervisor, which
// would then not read either.
type outbox struct {
	conn *net.UnixConn
	wake chan struct{} // holds one token when there is something new below
	done chan struct{}

	mu    sync.Mutex
	queue []message
	over  bool
}

func newOutbox(conn *net.UnixConn) *outbox {
	o := &outbox{conn: conn, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go o.run()
	return o
}

func (o *outbox) put(m message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, m)
	o.nudge()
}

// close returns when nothing is being sent any more: the files of what is kept are free then.
func (o *outbox) close() {
	o.mu.Lock()
	o.over = true
	o.nudge()
	o.mu.Unlock()
	_ = o.conn.SetWriteDeadline(time.Unix(1, 0)) // the shim has exited
	<-o.done
}

func (o *outbox) nudge() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) run() {
	defer close(o.done)
	for range o.wake {
		o.mu.Lock()
		next, over := o.queue, o.over
		o.queue = nil
		o.mu.Unlock()
		if over {
			return
		}
		for _, m := range next {
			if err := send(o.conn, m); err != nil {
				return // the shim has exited; its successor is told all of it
			}
		}
	}
}
