package terminal

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/cmd/sunaba/podcmd/execstream"
	"github.com/sunaba-project/sunaba/tests/pty"
)

func TestTerminal(t *testing.T) {
	_, f := pty.Open(t)
	pty.Resize(t, f, 120, 40)
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
	pty.Resize(t, f, 80, 50)
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
