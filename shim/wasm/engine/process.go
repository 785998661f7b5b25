package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim"
	"github.com/sunaba-project/sunaba/shim/reaper"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// hearing is how long a guest process that said it cannot hear a stop has to end itself.
const hearing = time.Second

// process is one guest process.
type process struct {
	engine    *Engine
	container *container
	io        shim.IO
	exited    chan struct{}
	ready     chan struct{} // closed when the process is created or there will be no guest
	released  chan struct{} // closed when the guest runs or will not

	mu       sync.Mutex
	child    *reaper.Child // nil before the process exists
	link     *os.File
	started  bool
	stopping bool         // it cannot hear a stop and was asked to
	stopped  bool         // it was killed because it cannot hear a stop
	timer    *time.Timer  // kills it if it does not answer
	created  link.Message // with what Started added
	unkept   error        // why nobody could take over
	failure  *link.Message
	last     *link.Message // Exit
	exit     shim.Exit
}

var _ shim.Process = (*process)(nil)

func newProcess(c *container, io shim.IO) *process {
	return &process{
		engine: c.engine, container: c, io: io,
		exited: make(chan struct{}), ready: make(chan struct{}), released: make(chan struct{}),
	}
}

// adopt takes a process that waits for its configuration. ready and exited follow in any case. It is
// created when checked, unless it is nil, has found its machine code whole.
func (p *process) adopt(child *reaper.Child, ours *os.File, checked func() (struct{}, error)) {
	p.mu.Lock()
	p.child, p.link = child, ours
	p.mu.Unlock()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		p.listen(checked)
	}()
	go p.wait(heard)
}

// configure sends the process what it is to be.
func (p *process) configure(o *outfit) {
	if err := o.send(p.link); err != nil {
		// It ended already: what it said of it, if anything, comes by the link.
		p.engine.destroy(p.child)
	}
}

// listen takes what the guest process says up to its last word, which stays in the link for a
// successor of this engine.
func (p *process) listen(checked func() (struct{}, error)) {
	for {
		m, err := link.Peek(p.link)
		if err != nil {
			return
		}
		if m.Kind == link.Created && checked != nil {
			if _, err := checked(); err != nil {
				m = link.Message{Kind: link.Error, Class: link.Stale, Text: err.Error()}
				defer p.engine.destroy(p.child)
			}
		}
		if last := p.take(m); last {
			return
		}
		if err := link.Skip(p.link); err != nil {
			return
		}
	}
}

// take believes a guest process only what fits into its life. It says whether it was its last word.
func (p *process) take(m link.Message) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.Kind == link.Created && p.created.Kind == "" && p.failure == nil:
		p.created = m
		p.unkept = p.keep()
		close(p.ready)
	case m.Kind == link.Started && p.created.Kind == link.Created:
		p.created = m
		_ = p.keep() // a successor that was not told knows what Created said
		close(p.released)
	case m.Kind == link.Error && p.created.Kind != link.Started:
		p.failure = &m
		if p.created.Kind == link.Created {
			close(p.released)
		}
		return true
	case m.Kind == link.Exit:
		p.last = &m
		return true
	case m.Kind == link.Heard && p.timer != nil:
		p.timer.Stop()
	}
	return false
}

// wait makes the exit true when the process is gone and all it said has been heard.
func (p *process) wait(heard <-chan struct{}) {
	<-p.child.Done
	<-heard
	p.mu.Lock()
	p.exit = p.ending()
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.created.Kind == "" {
		close(p.ready)
	}
	p.link.Close()
	p.mu.Unlock()
	close(p.exited)
}

// ending says how the process ended. The caller holds p.mu.
func (p *process) ending() shim.Exit {
	code, at := p.child.Status()
	e := shim.Exit{Code: uint32(code), At: at}
	switch {
	case p.last != nil:
		e.Code, e.Message, e.OOMKilled = p.last.Code, p.last.Text, p.last.Full
	case p.failure != nil:
		e.Message = p.failure.Text
	case code == 128+int(unix.SIGKILL) && p.container.cgroup.oomKilled():
		e.OOMKilled = true
	case code == 128+int(unix.SIGKILL) && p.stopped:
		e.Code = link.StopCode
	case code == 128+int(unix.SIGSYS):
		e.Message = "guest process ended by its system call list"
	case code < 128:
		e.Message = fmt.Sprintf("guest process ended with %d and without a word", code)
	}
	return e
}

// awaitReady returns when the process is created, or the error that it gave.
func (p *process) awaitReady(ctx context.Context) error {
	select {
	case <-p.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.created.Kind != "" {
		return p.unkept
	}
	if p.failure != nil {
		return &failure{*p.failure}
	}
	e := p.exit
	if e.OOMKilled {
		return fmt.Errorf("guest process was killed for lack of memory before it began: %w", errdefs.ErrFailedPrecondition)
	}
	return fmt.Errorf("guest process ended with %d before it began", e.Code)
}

// failure is a guest process's reason for not running a guest.
type failure struct{ message link.Message }

func (f *failure) Error() string { return f.message.Text }

// Unwrap gives the error its class.
func (f *failure) Unwrap() error {
	switch f.message.Class {
	case link.Invalid:
		return errdefs.ErrInvalidArgument
	case link.Precondition:
		return errdefs.ErrFailedPrecondition
	case link.Full:
		return unix.ENOSPC
	default:
		return errdefs.ErrInternal
	}
}

// Pid implements shim.Process.
func (p *process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil {
		return 0
	}
	return p.child.Pid
}

// Start implements shim.Process. It returns when the guest's listeners are open, or with what keeps
// them from it.
func (p *process) Start(ctx context.Context) error {
	if err := p.sendStart(); err != nil {
		return err
	}
	c := p.container
	if len(c.bundle.Facts.Listeners) == 0 && !c.entry.Load.HTTP || c.paused.Load() {
		return nil
	}
	select {
	case <-p.released:
	case <-p.exited:
	case <-ctx.Done():
		return fmt.Errorf("start guest: %w", ctx.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil {
		return fmt.Errorf("start guest: %w", &failure{*p.failure})
	}
	return nil
}

// sendStart lets the process run its guest.
func (p *process) sendStart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started {
		return fmt.Errorf("start guest: already started: %w", errdefs.ErrFailedPrecondition)
	}
	if p.gone() {
		return fmt.Errorf("start guest: it has ended: %w", errdefs.ErrNotFound)
	}
	if err := p.say(link.Message{Kind: link.Start}); err != nil {
		return fmt.Errorf("start guest: %w: %w", err, errdefs.ErrNotFound)
	}
	p.started = true
	return nil
}

// gone says whether there is no process any more. The caller holds p.mu.
func (p *process) gone() bool { return p.child != nil && closed(p.child.Done) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// isThere says whether the process has not been reaped, so that its pid is nobody else's.
func (p *process) isThere() bool { return p.engine.reaper.Signal(p.child, 0) == nil }

// Signal implements shim.Process. WASI has no signals: SIGKILL kills, a stop signal asks the guest
// to end, all else is not known to it and does nothing.
func (p *process) Signal(_ context.Context, sig syscall.Signal, all bool) error {
	if !all {
		return p.signal(sig)
	}
	var errs []error
	for _, one := range p.container.live() {
		if err := one.signal(sig); err != nil && (one == p || !errors.Is(err, errdefs.ErrNotFound)) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.child == nil:
		return fmt.Errorf("signal guest process: not started: %w", errdefs.ErrNotFound)
	case p.gone():
		return fmt.Errorf("signal guest process: it has ended: %w", errdefs.ErrNotFound)
	case sig == unix.SIGKILL:
		return p.kill()
	case !p.container.stops(sig):
		return nil
	case !p.started:
		p.stopped = true
		if err := p.keep(); err != nil {
			return err
		}
		return p.kill()
	}
	return p.interrupt()
}

// interrupt asks the guest to end. The caller holds p.mu.
func (p *process) interrupt() error {
	deaf := !p.created.Hears && !p.container.stopWait
	if deaf && !p.stopping {
		p.stopping = true
		if err := p.keep(); err != nil {
			return err
		}
	}
	if err := p.say(link.Message{Kind: link.Interrupt}); err != nil {
		return fmt.Errorf("interrupt guest: %w: %w", err, errdefs.ErrNotFound)
	}
	if deaf && p.timer == nil {
		p.timer = time.AfterFunc(hearing, p.giveUp)
	}
	return nil
}

// giveUp kills a guest that cannot hear a stop and whose process does not answer either: its
// runtime waits for a guest that computes.
func (p *process) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	_ = p.keep() // a successor that was not told asks it to end once more
	_ = p.kill() // gone is as good
}

// kill ends the process, a paused one too. The caller holds p.mu.
func (p *process) kill() error {
	err := p.engine.reaper.Signal(p.child, unix.SIGKILL)
	if p.container.paused.Load() {
		err = errors.Join(err, p.container.Resume(context.Background())) // a frozen process does not die
	}
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill guest process: it has ended: %w", errdefs.ErrNotFound)
	}
	return err
}

// tell sends a message to a guest process that may be gone.
func (p *process) tell(m link.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child != nil && !p.gone() {
		_ = p.say(m)
	}
}

// say writes a message to a guest process. One that does not read its link, because it was taken
// over or is paused, must not hold up those who want to kill it. The caller holds p.mu.
func (p *process) say(m link.Message) error {
	if err := p.link.SetWriteDeadline(time.Now().Add(hearing)); err != nil {
		return err
	}
	return link.Send(p.link, m)
}

// Exited implements shim.Process.
func (p *process) Exited() <-chan struct{} { return p.exited }

// Exit implements shim.Process.
func (p *process) Exit() shim.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// Resize implements shim.Process.
func (p *process) Resize(width, height uint16) error {
	if p.io.Console == nil {
		return fmt.Errorf("resize: the process has no terminal: %w", errdefs.ErrFailedPrecondition)
	}
	return unix.IoctlSetWinsize(int(p.io.Console.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
}

// CloseStdin implements shim.Process: the shim holds the only other end.
func (p *process) CloseStdin() error { return nil }
