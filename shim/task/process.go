package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/message"
	"github.com/sunaba-project/sunaba/shim/shared/supervisor"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// drainTime is how long the end of a process waits for the last of its output to be passed on.
// Output is over at once when its writers are; only a FIFO nobody reads, or a process that outlived
// its parent with the parent's output, can take longer.
const drainTime = 2 * time.Second

// slowTime is drainTime while lines get into the log, or wait for its disk.
const slowTime = 30 * time.Second

// lateTime is how long those who attached to a container that has ended may take for what is left
// of its output, unless they take nothing of it for drainTime. Servers give a removal 10 seconds.
const lateTime = 8 * time.Second

// process is one process of a container: init, or one that was executed in it.
type process struct {
	id       string // exec id, "" = init
	streams  *stdio.Streams
	names    stdio.Config // as the caller gave them
	engine   shim.Process
	finished chan struct{} // closed when the exit has been recorded

	mu        sync.Mutex // held across every step, so that no exit overtakes its start
	state     state
	exit      shim.Exit
	startedAt time.Time
	told      []int // signals that were sent, each once
}

func newProcess(id string, p shim.Process, s *stdio.Streams, names stdio.Config) *process {
	return &process{id: id, engine: p, streams: s, names: names, state: created, finished: make(chan struct{})}
}

// start starts the process. record(true) is called before that, record(false) if it fails;
// started is called before anybody can learn of its end.
func (p *process) start(ctx context.Context, record func(starts bool) error, started func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.state.to(running); err != nil {
		return err
	}
	if err := record(true); err != nil {
		return err
	}
	startedAt := time.Now() // before it can end
	if err := p.engine.Start(ctx); err != nil {
		if p.id != "" { // nobody waits for it any more
			p.streams.Close()
			p.state, p.exit = stopped, shim.Exit{Code: supervisor.Unknown, At: time.Now()}
			close(p.finished)
		}
		return errors.Join(err, record(false))
	}
	p.state, p.startedAt = running, startedAt
	p.connect()
	started()
	return nil
}

// connect starts to copy, once the child holds its ends.
func (p *process) connect() {
	var console *os.File
	if h, ok := p.engine.(shim.ConsoleHolder); ok && p.names.Terminal {
		console = h.Console()
	}
	p.streams.Start(console)
}

// resize sets the size of a process's terminal.
func (p *process) resize(width, height uint16) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state >= stopped {
		return fmt.Errorf("process is %s: %w", p.state, errdefs.ErrFailedPrecondition)
	}
	return p.engine.Resize(width, height)
}

// signal sends a signal to a process that is there.
func (p *process) signal(ctx context.Context, sig syscall.Signal, all bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state >= stopped {
		return fmt.Errorf("process has ended: %w", errdefs.ErrNotFound)
	}
	if p.engine.Pid() == 0 {
		return fmt.Errorf("process is not started: %w", errdefs.ErrFailedPrecondition)
	}
	err := p.engine.Signal(ctx, sig, all)
	if err == nil && !slices.Contains(p.told, int(sig)) {
		p.told = append(p.told, int(sig))
	}
	return err
}

// describe adds what is known of the process to what its engine knows.
func (p *process) describe(d *shim.Details) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state >= stopped {
		exit := p.exit
		d.Exit = &exit
	}
	d.PID = cmp.Or(d.PID, p.engine.Pid())
	d.StartedAt, d.Told = p.startedAt, slices.Clone(p.told)
}

// alive calls fn unless the process has ended.
func (p *process) alive(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state < stopped {
		fn()
	}
}

// end records how the process ended. announce is called before waiters learn of it.
func (p *process) end(exit shim.Exit, announce func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.exit = stopped, exit
	announce()
	close(p.finished)
}

// drain waits until the output has been passed on, but not for ever. The limit counts once output
// does not wait for an attacher any more, and anew while lines get into the log.
func (p *process) drain(limit time.Duration) {
	p.streams.Awaited()
	slow := time.After(slowTime)
	last, _ := p.streams.Logged()
	for busy := true; busy; {
		select {
		case <-p.streams.Drained():
			return
		case <-slow:
			return
		case <-time.After(limit):
			now, writes := p.streams.Logged()
			last, busy = now, writes || now != last
		}
	}
}

// wait returns when the exit has been recorded.
func (p *process) wait(ctx context.Context) (shim.Exit, error) {
	select {
	case <-p.finished:
		return p.exit, nil
	case <-ctx.Done():
		return shim.Exit{}, ctx.Err()
	}
}

// pid is the host pid, 0 before the process exists.
func (p *process) pid() uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return uint32(p.engine.Pid())
}

func (p *process) snapshot() (state, shim.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.exit
}

// become makes a move that step carries out.
func (p *process) become(next state, step func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.state.to(next); err != nil {
		return err
	}
	if err := step(); err != nil {
		return err
	}
	p.state = next
	return nil
}

// state of a process.
//
//	created ──▶ running ◀──▶ paused      (only init pauses, and its container with it)
//	   │           │            │
//	   └───────────┴────────────┴──▶ stopped ──▶ deleted
//
// A created process may stop without having run: it was killed, or it never came to its start.
type state int

const (
	created state = iota + 1
	running
	paused
	stopped
	deleted
)

// moves are all there are.
var moves = map[state][]state{
	created: {running, stopped, deleted}, // deleted: an exec that was never started has no process
	running: {paused, stopped},
	paused:  {running, stopped},
	stopped: {deleted},
}

// to checks a move; the caller holds the process's lock and then sets the state.
func (s state) to(next state) error {
	if slices.Contains(moves[s], next) {
		return nil
	}
	if s == deleted {
		return fmt.Errorf("process is deleted: %w", errdefs.ErrNotFound)
	}
	return fmt.Errorf("process is %s, it cannot become %s: %w", s, next, errdefs.ErrFailedPrecondition)
}

func (s state) String() string {
	return [...]string{created: "created", running: "running", paused: "paused", stopped: "stopped", deleted: "deleted"}[s]
}

// status is the state as the Task API numbers it, to which what is deleted is stopped.
func (s state) status() int32 {
	return int32(slices.Index(message.Statuses, min(s, stopped).String()))
}
