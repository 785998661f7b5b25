// Package terminal connects the program's own streams, and the terminal that stdin may be, with a
// command in a container.
package terminal

import (
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/execstream"
)

// Open returns streams for a command in a container: those given, without in unless stdin is
// wanted. If tty is wanted too and in is a terminal, every key is passed on as it is typed, which
// isTerminal says. The caller calls done, which gives the terminal back.
func Open(in io.Reader, out, errs io.Writer, stdin, tty bool) (s execstream.Streams, isTerminal bool, done func() error, err error) {
	s, done = execstream.Streams{Stdout: out, Stderr: errs}, func() error { return nil }
	if !stdin {
		return s, false, done, nil
	}
	s.Stdin = in
	if !tty {
		return s, false, done, nil
	}
	term, ok := terminalOf(in)
	if !ok {
		fmt.Fprintln(errs, NoTerminal)
		return s, false, done, nil
	}
	if err := term.raw(); err != nil {
		return s, false, done, err
	}
	sizes, stop := term.sizes()
	s.Sizes = sizes
	return s, true, func() error { stop(); return term.restore() }, nil
}

// NoTerminal says why a command gets no terminal although one was requested.
const NoTerminal = "Unable to use a TTY - input is not a terminal or the right kind of file"

// terminal is the terminal that stdin is.
type terminal struct {
	fd     int
	before *unix.Termios
}

// Is says whether a reader is a terminal.
func Is(in io.Reader) bool {
	_, ok := terminalOf(in)
	return ok
}

// terminalOf finds out whether a reader is a terminal.
func terminalOf(in any) (*terminal, bool) {
	f, ok := in.(*os.File)
	if !ok {
		return nil, false
	}
	before, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return &terminal{fd: int(f.Fd()), before: before}, err == nil
}

// raw passes every key on as it is, until restore.
func (t *terminal) raw() error {
	mode := *t.before
	mode.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	mode.Oflag &^= unix.OPOST
	mode.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	mode.Cflag &^= unix.CSIZE | unix.PARENB
	mode.Cflag |= unix.CS8
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(t.fd, unix.TCSETS, &mode); err != nil {
		return fmt.Errorf("set mode of terminal: %w", err)
	}
	return nil
}

func (t *terminal) restore() error {
	if err := unix.IoctlSetTermios(t.fd, unix.TCSETS, t.before); err != nil {
		return fmt.Errorf("restore mode of terminal: %w", err)
	}
	return nil
}

// sizes are the terminal's size, now and whenever it changes, until stop is called.
func (t *terminal) sizes() (sizes <-chan execstream.Size, stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	changed <- unix.SIGWINCH
	out, done := make(chan execstream.Size), make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-changed:
			}
			size, err := unix.IoctlGetWinsize(t.fd, unix.TIOCGWINSZ)
			if err != nil {
				continue
			}
			select {
			case <-done:
				return
			case out <- execstream.Size{Width: size.Col, Height: size.Row}:
			}
		}
	}()
	return out, func() { signal.Stop(changed); close(done) }
}
