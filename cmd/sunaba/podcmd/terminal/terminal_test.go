package terminal

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/execstream"
)

// openTerminal makes a pseudo terminal and returns the end that a program has.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestTerminal(t *testing.T) {
	f := openTerminal(t)
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}); err != nil {
		t.Fatal(err)
	}
	term, ok := terminalOf(f)
	if !ok {
		t.Fatal("it is no terminal")
	}
	echoes := func() bool {
		mode, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return mode.Lflag&(unix.ECHO|unix.ICANON|unix.ISIG) == unix.ECHO|unix.ICANON|unix.ISIG
	}
	if err := term.raw(); err != nil || echoes() {
		t.Errorf("%v, it echoes: %v", err, echoes())
	}
	sizes, stop := term.sizes()
	if got := <-sizes; got != (execstream.Size{Width: 120, Height: 40}) {
		t.Errorf("size %v", got)
	}
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 80}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	if got := <-sizes; got != (execstream.Size{Width: 80, Height: 50}) {
		t.Errorf("size %v", got)
	}
	stop()
	if err := term.restore(); err != nil || !echoes() {
		t.Errorf("%v, it echoes: %v", err, echoes())
	}
	if _, ok := terminalOf(strings.NewReader("")); ok {
		t.Error("a text is a terminal")
	}
}
