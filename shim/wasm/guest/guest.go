// Package guest is the guest face of the shim binary: a process that locks itself in and then
// runs one WebAssembly module.
//
// It starts as root in namespaces of its own and moves into an empty private root, from where it
// does not see the host. Then it waits for its configuration, which may take long: the engine
// prewarms processes. From that, and from the mounts that come with it, it builds the container's
// tree (/rootfs beside /cache, the compiled module), opens the announced listeners, and gives up
// root, every capability, every path but those two and most system calls. Only then it opens the
// module. A further process of a container (exec) joins the tree that is already there instead, and
// its root is its compiled module's directory.
package guest

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/shim/wasm/link"
)

// Exit codes of a process whose guest never ran; those of guests go over the link.
const (
	exitNoLink  = 1
	exitFailed  = 125
	exitRefused = 126 // of a further process: what was asked for cannot be executed
)

// exitTrap is the exit code of a guest that trapped: 128 + SIGABRT, as of an aborted process.
const exitTrap = 134

// Further is the argument of the guest face for a process that joins a container.
const Further = "further"

// Main runs the guest face and returns the process's exit code.
func Main(args []string) int { return newProcess().main(args) }

func newProcess() *process {
	p := &process{}
	p.loading, p.calling = p.load, p.call
	return p
}

func (p *process) main(args []string) int {
	// A descriptor in non-blocking mode is waited for by the runtime's poller, without a thread of
	// its own.
	if err := unix.SetNonblock(link.FD, true); err != nil {
		fmt.Fprintf(os.Stderr, "guest: no link to an engine: %v\n", err)
		return exitNoLink
	}
	p.link = os.NewFile(link.FD, "link")
	if len(args) == 0 || args[0] != Further {
		if err := p.standBy(); err != nil {
			return p.fail(err)
		}
		if err := p.warm(); err != nil {
			return p.fail(err)
		}
	}
	config, err := link.ReceiveConfig(p.link)
	if err != nil {
		return exitNoLink // the engine thought better of it
	}
	p.config = config
	if p.config.Memory != 0 {
		debug.SetMemoryLimit(int64(p.config.Engine / 4 * 3)) // no other collection comes while the module is loaded
	}
	if err := p.receive(); err != nil {
		return p.fail(err)
	}
	if p.config.Refuse != "" {
		fmt.Fprintln(os.Stderr, p.config.Refuse)
		return p.end(p.config.RefuseCode, p.config.Refuse)
	}
	if err := p.prepare(); err != nil {
		return p.fail(err)
	}
	if err := p.loading(); err != nil {
		return p.fail(err)
	}
	return p.run()
}

// process is this process.
type process struct {
	link   *os.File
	config link.Config
	room   *room   // of a container's first process
	trees  []*tree // what came with the configuration and is not placed yet
	guest  guest
	lists  *lists // of system calls, nil until they are made
	// listens is set once the guest can be asked to end.
	listens atomic.Bool

	loading, calling func() error // load and call, unless the process is Taken
}

// receive takes the files that belong to the configuration, and makes the streams among them this
// process's own.
func (p *process) receive() error {
	files, err := link.ReceiveFiles(p.link, p.config.Files)
	if err != nil {
		return err
	}
	if len(files) < len(p.config.Streams) {
		return fmt.Errorf("receive files: %d for %d streams", len(files), len(p.config.Streams))
	}
	for i, stream := range p.config.Streams {
		if stream < unix.Stdin || stream > unix.Stderr {
			return fmt.Errorf("take over stream %d: it does not exist", stream)
		}
		if err := unix.Dup3(files[i], stream, 0); err != nil {
			return fmt.Errorf("take over stream %d: %w", stream, err)
		}
		unix.Close(files[i])
	}
	for _, fd := range files[len(p.config.Streams):] {
		p.trees = append(p.trees, &tree{fd})
	}
	return nil
}

// nextTree is the next of the trees that came with the configuration.
func (p *process) nextTree() (*tree, error) {
	if len(p.trees) == 0 {
		return nil, errors.New("a tree is missing")
	}
	t := p.trees[0]
	p.trees = p.trees[1:]
	return t, nil
}

// fault is an error with its class.
type fault struct {
	class link.Class
	err   error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

func faultf(class link.Class, format string, args ...any) error {
	return &fault{class: class, err: fmt.Errorf(format, args...)}
}

// fail reports that there will be no guest.
func (p *process) fail(err error) int {
	m := link.Message{Kind: link.Error, Class: link.Internal, Text: link.Shorten(err.Error())}
	var f *fault
	switch {
	case errors.As(err, &f):
		m.Class = f.class
	case durable.Full(err):
		m.Class = link.Full
	case durable.ReadOnly(err):
		m.Class = link.Precondition
	}
	code := exitFailed
	if p.config.Further {
		fmt.Fprintln(os.Stderr, m.Text)
		code = exitRefused
	}
	_ = link.Send(p.link, m) // without an engine nothing asks
	return code
}

// end reports how the guest ended. Only the low byte of its code fits into the process's own.
func (p *process) end(code uint32, text string) int {
	_ = link.Send(p.link, link.Message{Kind: link.Exit, Code: code, Text: link.Shorten(text)})
	return int(code & 0xff)
}

// endFull is end for a guest that ended because its memory could not grow.
func (p *process) endFull(code uint32, text string) int {
	const reason = "the guest's memory had reached the container's limit"
	if text != "" {
		text += ": "
	}
	_ = link.Send(p.link, link.Message{Kind: link.Exit, Code: code, Text: link.Shorten(text + reason), Full: true})
	return int(code & 0xff)
}

// cpuTime is the CPU time this process has used.
func cpuTime() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
