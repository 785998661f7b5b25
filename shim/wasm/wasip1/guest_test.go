package wasip1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/sunaba-project/sunaba/shim/wasm/wasitest"
)

// guest is a program to run under a Host of its own.
type guest struct {
	module    []byte
	args, env []string
	root      string // becomes the preopen "/", if set
	readOnly  bool
	stdin     *os.File
	listeners []Listener
	walks     bool
	interrupt <-chan struct{}
}

// run runs the guest to its end.
func (g guest) run(t testing.TB) (code uint32, stdout, stderr []byte) {
	t.Helper()
	out, readOut := pipe(t)
	errs, readErrs := pipe(t)
	config := Config{Args: g.args, Env: g.env, Stdin: -1, Stdout: int(out.Fd()), Stderr: int(errs.Fd()), Listeners: g.listeners}
	if g.stdin != nil {
		config.Stdin = int(g.stdin.Fd())
	}
	if g.root != "" {
		config.Preopens = []Preopen{{FD: wasitest.OpenDir(t, g.root), Name: "/", ReadOnly: g.readOnly}}
	}
	h, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	h.system.Fallbacks.Walk = h.system.Fallbacks.Walk || g.walks
	defer h.Close()
	if g.interrupt != nil {
		go func() {
			<-g.interrupt
			h.Interrupt()
		}()
	}
	code = g.start(t, h)
	out.Close()
	errs.Close()
	return code, readOut(), readErrs()
}

// start instantiates the module and returns its exit code.
func (g guest) start(t testing.TB, h *Host) uint32 {
	t.Helper()
	ctx := context.Background()
	r := wasitest.Runtime(ctx)
	defer r.Close(ctx)
	if err := h.Instantiate(ctx, r); err != nil {
		t.Fatal(err)
	}
	_, err := r.InstantiateWithConfig(ctx, g.module, wazero.NewModuleConfig().WithName(""))
	var exit *sys.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Log(err)
	return 134
}

// pipe returns the writing end of a pipe and a function that gives everything that came out of it.
func pipe(t testing.TB) (*os.File, func() []byte) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(&b, r)
		r.Close()
	}()
	return w, func() []byte { <-done; return b.Bytes() }
}
