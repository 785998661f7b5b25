package guest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/wasm/canonical"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// processors are enough for the guest and the link. Until the module is loaded there is one.
const processors = 2

// processors is how many this process may use from its start on. What answers requests may use all
// that the container has.
func (p *process) processors() int {
	if p.guest.http == nil {
		return processors
	}
	n := runtime.NumCPU()
	if p.config.Processors > 0 {
		n = min(n, p.config.Processors)
	}
	return max(n, processors)
}

// run reports that the guest is ready, waits for the engine to let it start, and returns the exit
// code of this process when it has ended.
func (p *process) run() int {
	runtime.GOMAXPROCS(p.processors())
	p.hearTerminal()
	if err := p.callLists().seal.Install(); err != nil {
		return p.fail(err)
	}
	if err := p.report(link.Created); err != nil {
		return exitNoLink
	}
	p.guest.settleHeap()
	if !p.awaitStart() {
		return exitNoLink
	}
	if err := p.listen(); err != nil {
		return p.fail(err)
	}
	p.listens.Store(len(p.config.Listen) > 0)
	go p.obey()
	time.AfterFunc(settled, p.guest.unmap)
	if err := p.report(link.Started); err != nil {
		return exitNoLink
	}
	code, text := p.ending(p.calling())
	if m := p.guest.memory; m != nil && forMemory(code) && m.Full() {
		return p.endFull(code, text)
	}
	return p.end(code, text)
}

// forMemory says whether a guest that ends with this code may do so because its memory could not
// grow: by a trap, as what C, C++ and Rust make of it, or as Go's runtime.
func forMemory(code uint32) bool {
	const outOfMemory = 2 // Go's
	return code == exitTrap || code == outOfMemory
}

func (p *process) report(kind link.Kind) error {
	m := link.Message{Kind: kind, EngineCPU: cpuTime(), Hears: p.guest.host.Hears(), Shared: p.guest.shared}
	m.LinearBase, m.LinearSize = p.guest.memory.Reservation()
	return link.Send(p.link, m)
}

// awaitStart returns false when the engine has exited, or wants the guest to end before its start.
func (p *process) awaitStart() bool {
	for {
		m, err := link.Receive(p.link)
		if err != nil {
			return false
		}
		switch m.Kind {
		case link.Start:
			return true
		case link.Interrupt:
			p.end(link.StopCode, "")
			return false
		case link.Ceiling:
			p.guest.memory.SetCeiling(m.Bytes)
		}
	}
}

// obey does what the engine says while the guest runs. Without an engine the guest ends.
func (p *process) obey() {
	for {
		m, err := link.Receive(p.link)
		if err != nil {
			os.Exit(exitNoLink)
		}
		switch m.Kind {
		case link.Ceiling:
			p.guest.memory.SetCeiling(m.Bytes)
		case link.Interrupt:
			p.interrupt()
		}
	}
}

// hearTerminal has Ctrl-C, Ctrl-\ and the end of a terminal do what they do to a program without
// handlers: they end it with 128 and the signal's number. A guest that listens is asked to end
// first. Left alone, Go's runtime ends this process with 2, which may be the guest's own code, and
// for Ctrl-\ shows its own goroutines.
func (p *process) hearTerminal() {
	if _, err := unix.IoctlGetTermios(unix.Stdin, unix.TCGETS); err != nil {
		return
	}
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP)
	go func() {
		last := <-heard
		if p.listens.Load() {
			p.interrupt()
			last = <-heard
		}
		os.Exit(p.end(128+uint32(last.(unix.Signal)), ""))
	}()
}

// interrupt asks the guest to end. One that cannot hear it ends here and now, unless it is to be
// waited for.
func (p *process) interrupt() {
	if !p.guest.host.Hears() && !p.config.StopWait {
		os.Exit(p.end(link.StopCode, ""))
	}
	_ = link.Send(p.link, link.Message{Kind: link.Heard}) // without an engine obey ends the process
	p.guest.host.Interrupt()
}

// call runs the guest to its end.
func (p *process) call() error {
	g := &p.guest
	if g.http != nil {
		return g.http.serve()
	}
	if g.module == nil { // its start function is code of its own
		if err := g.instantiate(); err != nil {
			return err
		}
	}
	_, err := g.module.ExportedFunction("_start").Call(g.ctx)
	return err
}

// ending turns what wazero returned into an exit code. The stack of a trap is written to standard
// error, and its name into the message with that of the function.
func (p *process) ending(err error) (code uint32, text string) {
	var exit *sys.ExitError
	switch {
	case err == nil:
		return 0, ""
	case errors.As(err, &exit):
		return exit.ExitCode(), ""
	}
	if f, ok := errors.AsType[*fault](err); ok && f.class == link.Precondition {
		fmt.Fprintln(os.Stderr, err)
		return exitTrap, err.Error()
	}
	stack, name := p.trapText(err)
	fmt.Fprintln(os.Stderr, stack)
	return exitTrap, "wasm trap: " + name
}

// trapText is the stack of a trap, and its name with that of the function.
func (p *process) trapText(err error) (stack, name string) {
	stack = p.name(strings.TrimSpace(err.Error()))
	name, _, _ = strings.Cut(stack, "\n")
	if _, after, found := strings.Cut(name, "wasm error: "); found {
		name = after
	}
	if trap, ok := errors.AsType[*canonical.Trap](err); ok {
		name = trap.Error()
	} else if function := trapped(stack); function != "" {
		name += ", in " + function
	}
	return stack, name
}
