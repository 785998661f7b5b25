// Package stdio moves bytes between a container's processes and where their caller wants them:
// nowhere, a FIFO as containerd uses them, or a log file in CRI format that the shim writes itself,
// so that no line needs the daemon. Idle streams hold no buffer and no thread.
package stdio

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Scheme starts the name of a CRI log file: cri:///var/log/pods/…/0.log.
const Scheme = "cri://"

// Loose is the prefix of the name of a FIFO for output whose reader may leave: pipe:///path. What
// comes after that is read and dropped; of a FIFO named by its path alone it would wait for the
// next reader.
const Loose = "pipe://"

// Attachable is the name of an input that stays open for those who attach, and of an output that
// is written to those only. CRI log files can be attached to as well.
const Attachable = "attach:"

// Config says where the streams of one process go. An empty name discards output and gives an empty
// input, a path is a FIFO; Scheme, Loose and Attachable say what else there is, and containerd's
// log addresses (fifo://, file://, binary://, binary-v2://) what its clients may give for an
// output.
type Config struct {
	Stdin, Stdout, Stderr string
	Terminal              bool   // one pty for all three; Stderr is not used
	AwaitAttach           bool   // output waits for the first attacher, also while that one does not read
	Limits                Limits // of the log file of Scheme
	UID, GID              uint32 // owner and group of the pipes, so that a program may open its own streams anew; 0 = as they are
	Logger                *slog.Logger
	HoldStdin             bool   // the input stays open until CloseStdin, also when every writer of its FIFO has left
	InputEnds             func() // called before our end of the process's input is closed, so that copies of it can be; nil = none

	// For a log address that names a program: whose output it takes, and who starts it and reaps it.
	ID, Namespace string
	Run           func(*exec.Cmd) (Program, error)
}

// Streams are the streams of one process. Life story: Open makes both ends; the child gets its ends
// from Child; Start closes them here and copies; Drained tells that the last byte of output
// has been passed on; Close ends what is left, passing on what can be read without waiting.
type Streams struct {
	log *slog.Logger

	child struct{ stdin, stdout, stderr, console *os.File }

	stdin   *copier // caller's FIFO → process
	input   *input  // instead of stdin, if it is Attachable
	outputs []*copier
	taps    map[string]*tap // by stream, the outputs that can be attached to
	gate    *gate           // nil = output does not wait
	console *os.File

	file    *logFile
	logger  *logger
	cfg     Config
	drained chan struct{}
	once    sync.Once
	end     sync.Once
}

// Open makes the streams. It waits for a reader on output FIFOs, as containerd's callers expect.
func Open(ctx context.Context, cfg Config) (_ *Streams, err error) {
	s := &Streams{log: cfg.Logger, cfg: cfg, drained: make(chan struct{})}
	if cfg.AwaitAttach {
		s.gate = newGate()
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if strings.HasPrefix(cfg.Stdin, Scheme) || strings.HasPrefix(cfg.Stdin, Loose) {
		return nil, fmt.Errorf("stdin %q: it is not the name of an input: %w", cfg.Stdin, errdefs.ErrInvalidArgument)
	}
	if cfg.Terminal {
		return s, s.openTerminal(ctx, cfg)
	}
	if err := s.openStdin(cfg.Stdin); err != nil {
		return nil, err
	}
	if s.child.stdout, err = s.openOutput(ctx, cfg.Stdout, "stdout"); err != nil {
		return nil, err
	}
	if s.child.stderr, err = s.openOutput(ctx, cfg.Stderr, "stderr"); err != nil {
		return nil, err
	}
	return s, s.own(cfg)
}

// own gives the child's pipes to the user that its caller wants.
func (s *Streams) own(cfg Config) error {
	if cfg.UID == 0 && cfg.GID == 0 {
		return nil
	}
	for _, end := range []struct {
		name string
		file *os.File
	}{{cfg.Stdin, s.child.stdin}, {cfg.Stdout, s.child.stdout}, {cfg.Stderr, s.child.stderr}} {
		if end.name == "" {
			continue // /dev/null is everybody's
		}
		if err := end.file.Chown(int(cfg.UID), int(cfg.GID)); err != nil {
			return fmt.Errorf("give pipe to user %d: %w", cfg.UID, err)
		}
	}
	return nil
}

func (s *Streams) openStdin(path string) error {
	if path == "" {
		null, err := os.Open(os.DevNull)
		s.child.stdin = null
		return err
	}
	if path == Attachable {
		childEnd, shimEnd, err := pipe(true)
		if err != nil {
			return err
		}
		s.child.stdin = childEnd
		s.input = &input{file: shimEnd, ends: s.cfg.InputEnds, copiers: map[*copier]struct{}{}}
		return nil
	}
	fifo, err := s.openInput(path)
	if err != nil {
		return err
	}
	childEnd, shimEnd, err := pipe(true)
	if err != nil {
		fifo.Close()
		return err
	}
	s.child.stdin = childEnd
	s.stdin = newCopier("stdin", fifo, &fileSink{File: shimEnd, ends: s.cfg.InputEnds}, true)
	return nil
}

// openInput opens the FIFO of an input. One that is open for writing too does not end.
func (s *Streams) openInput(path string) (*os.File, error) {
	if s.cfg.HoldStdin {
		return os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	}
	return openFIFOReader(path)
}

// openOutput returns the end a child writes to and adds the copier behind it.
func (s *Streams) openOutput(ctx context.Context, name, stream string) (*os.File, error) {
	sink, err := s.sink(ctx, name, stream)
	if err != nil {
		return nil, err
	}
	if sink == nil {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	childEnd, shimEnd, err := pipe(false)
	if err != nil {
		sink.Close()
		return nil, err
	}
	s.outputs = append(s.outputs, newCopier(stream, shimEnd, sink, false))
	return childEnd, nil
}

func (s *Streams) openTerminal(ctx context.Context, cfg Config) error {
	master, slave, err := openPTY()
	if err != nil {
		return err
	}
	s.console = master
	s.child.stdin, s.child.stdout, s.child.stderr, s.child.console = slave, slave, slave, master
	sink, err := s.sink(ctx, cfg.Stdout, "stdout")
	if err != nil {
		return err
	}
	if sink == nil {
		sink = discard{} // somebody has to read a terminal, or its program blocks
	}
	s.outputs = append(s.outputs, newCopier("stdout", nil, sink, false)) // its source is known at Start
	switch cfg.Stdin {
	case "":
		return nil
	case Attachable:
		s.input = &input{terminal: true, copiers: map[*copier]struct{}{}} // its file is known at Start
		return nil
	}
	fifo, err := s.openInput(cfg.Stdin)
	if err != nil {
		return err
	}
	s.stdin = newCopier("stdin", fifo, discard{}, true) // so is its sink
	return nil
}

// Child returns the ends for the child process. Input and outputs are one pty slave for a terminal,
// whose master is console; without a terminal console is nil.
func (s *Streams) Child() (stdin, stdout, stderr, console *os.File) {
	return s.child.stdin, s.child.stdout, s.child.stderr, s.child.console
}

// Start closes the child's ends here and copies from then on. A console, if given, is the master of
// a pty that an OCI runtime opened inside the container; it replaces the one from Open and is
// closed by Close.
func (s *Streams) Start(console *os.File) {
	s.once.Do(func() { s.start(console) })
}

func (s *Streams) start(console *os.File) {
	s.closeChild()
	if s.console != nil {
		if console != nil && console != s.console {
			s.console.Close()
			s.console = console
		}
		s.outputs[0].src = s.console
		if s.stdin != nil {
			s.stdin.dst = &fileSink{File: s.console, keep: true}
		}
		if s.input != nil {
			s.input.file = s.console
		}
	}
	if s.stdin != nil {
		go s.stdin.run()
	}
	s.gate.start()
	go func() {
		s.gate.wait()
		for _, c := range s.outputs[min(1, len(s.outputs)):] {
			go c.run()
		}
		if len(s.outputs) > 0 {
			s.outputs[0].run()
		}
		for _, c := range s.outputs {
			<-c.done
		}
		close(s.drained)
	}()
}

// CloseStdin passes on what the caller has written so far and then ends the process's input.
func (s *Streams) CloseStdin() {
	if s.stdin != nil {
		s.stdin.finish()
	}
	if s.input != nil {
		s.input.finish()
	}
}

// Reopen opens the log file anew, after its old one was renamed. No line is lost, doubled or torn.
// On error lines continue to the old file and no new file is made. ErrFailedPrecondition without a
// log file, or when its last line has been written.
func (s *Streams) Reopen() error {
	if s.file == nil {
		return fmt.Errorf("no log file: %w", errdefs.ErrFailedPrecondition)
	}
	return s.file.reopen()
}

// Drained is closed when the last byte of output has been passed on.
func (s *Streams) Drained() <-chan struct{} { return s.drained }

// Logged is how often the log was written to, and whether it is being written to now, for which a
// disk may need long.
func (s *Streams) Logged() (writes int, now bool) {
	if s.file == nil {
		return 0, false
	}
	if !s.file.mu.TryLock() {
		return 0, true
	}
	defer s.file.mu.Unlock()
	return s.file.writes, false
}

// Close ends copying. What can be read without waiting is passed on first. It is idempotent.
func (s *Streams) Close() {
	s.end.Do(func() {
		s.closeChild()
		s.rush()
		s.once.Do(func() { // never started
			for _, c := range s.outputs {
				c.abandon()
			}
			if s.stdin != nil {
				s.stdin.abandon()
			}
			close(s.drained)
		})
		if s.stdin != nil {
			s.stdin.stop()
		}
		if s.input != nil {
			s.input.stop()
		}
		for _, c := range s.outputs {
			c.stop()
		}
		if s.console != nil {
			s.console.Close()
		}
		if s.logger != nil {
			s.logger.close()
		}
	})
}

func (s *Streams) closeChild() {
	for _, f := range []*os.File{s.child.stdin, s.child.stdout, s.child.stderr} {
		if f != nil {
			f.Close() // a terminal's slave comes three times; closing again does nothing
		}
	}
	s.child.stdin, s.child.stdout, s.child.stderr, s.child.console = nil, nil, nil, nil
}

// pipe makes a pipe: the child's end blocks, as programs expect, the shim's does not.
func pipe(childReads bool) (childEnd, shimEnd *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	child, ours := fds[1], fds[0]
	if childReads {
		child, ours = fds[0], fds[1]
	}
	if err := unix.SetNonblock(ours, true); err != nil {
		unix.Close(child)
		unix.Close(ours)
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	return os.NewFile(uintptr(child), "pipe"), os.NewFile(uintptr(ours), "pipe"), nil
}
