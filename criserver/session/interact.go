package session

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sunaba-project/sunaba/criserver/errtext"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/shim/client"
	"github.com/sunaba-project/sunaba/shim/stdio"
)

// Exec runs a command in a running container for a client that takes part, and returns its exit
// code. If the client leaves (ctx ends) the command's input ends and its output is dropped; with a
// terminal it gets SIGHUP. It is not killed otherwise.
//
// # Errors
//
// ErrNotFound, ErrFailedPrecondition if the container does not run, the context's, or why the
// command failed to start. A command that ends with a code other than 0 is no error; nor is one
// that does not exist (127) or cannot be executed (126), where the runtime says so.
func (m *Manager) Exec(ctx context.Context, id string, cmd []string, s Streams) (int32, error) {
	r, err := m.containers.Reach(id)
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	process, err := m.process(r, cmd)
	if err != nil {
		return 0, err
	}
	if s.TTY {
		process.Terminal = true
		if !slices.ContainsFunc(process.Env, func(e string) bool { return strings.HasPrefix(e, "TERM=") }) {
			process.Env = append(process.Env, "TERM=xterm")
		}
	}
	code, err := m.interact(ctx, newExecution(r, streamPrefix), r.Bundle, process, s)
	if err != nil {
		return 0, fmt.Errorf("exec in container %q: %w", r.Record.Name(), err)
	}
	return code, nil
}

func (m *Manager) interact(ctx context.Context, e *execution, dir string, process *specs.Process, s Streams) (int32, error) {
	ses, err := openSession(dir, e.execID, s)
	if err != nil {
		return 0, err
	}
	defer ses.close()
	req := client.ExecRequest{ID: e.id, ExecID: e.execID, Process: process, Terminal: s.TTY}
	req.Stdin, req.Stdout, req.Stderr = ses.names(stdio.Loose)
	if err := e.prepare(ctx, req); err != nil {
		return 0, err
	}
	ses.taken()
	if _, err := e.shim.Start(ctx, e.id, e.execID); err != nil {
		e.drop(ctx)
		return refused(err, s)
	}
	var resize func(width, height uint16)
	if s.TTY {
		resize = func(w, h uint16) { _ = e.shim.ResizePty(m.ctx, e.id, e.execID, uint32(w), uint32(h)) } // it may have ended
	}
	ses.copy(resize)
	type end struct {
		exit client.Exit
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		exit, err := e.shim.Wait(m.ctx, e.id, e.execID)
		ended <- end{exit, err}
	}()
	select {
	case x := <-ended:
		if x.err != nil {
			return 0, e.shim.ExplainMissing(x.err)
		}
		ses.drain(ctx)
		e.drop(ctx)
		return int32(x.exit.Code), nil
	case <-ctx.Done():
		if s.TTY {
			e.hangUp(ctx)
		}
		go func() {
			if x := <-ended; x.err == nil {
				e.drop(m.ctx)
			}
		}()
		return 0, fmt.Errorf("the client has left: %w", ctx.Err())
	}
}

// The exit codes that shells have for commands that cannot be started.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// refused tells a client as a shell does that its command is not there or cannot be executed. Any
// other error stays one.
func refused(err error, s Streams) (int32, error) {
	var code int32
	switch {
	case errdefs.IsInvalidArgument(err):
		code = codeNotFound
	case errdefs.IsPermissionDenied(err):
		code = codeNotExecutable
	default:
		return 0, err
	}
	to, end := s.Stderr, "\n"
	if s.TTY {
		to, end = s.Stdout, "\r\n"
	}
	if to != nil {
		_, _ = io.WriteString(to, errtext.Of(err)+end) // a client that has left needs no text
	}
	return code, nil
}

// hangUp tells a command that its terminal was closed.
func (e *execution) hangUp(ctx context.Context) {
	ctx, cancel := sandbox.Aside(ctx)
	defer cancel()
	_ = e.shim.Kill(ctx, e.id, e.execID, syscall.SIGHUP, false) // it may have ended
}
