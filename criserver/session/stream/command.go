package stream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
	"k8s.io/utils/exec"

	"github.com/sunaba-project/sunaba/criserver/session"
	"github.com/sunaba-project/sunaba/host/process"
)

// command is what a client of exec or attach takes part in.
type command struct {
	wants remotecommand.Options
	run   func(ctx context.Context, s session.Streams) (code int32, err error)
}

func (s *Server) serveExec(w http.ResponseWriter, r *http.Request, req *runtime.ExecRequest) {
	c := &command{wants: toOptions(req), run: func(ctx context.Context, streams session.Streams) (int32, error) {
		return s.o.Sessions.Exec(ctx, req.GetContainerId(), req.GetCmd(), streams)
	}}
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		s.serveV5(w, r, c)
		return
	}
	remotecommand.ServeExec(w, r, c, "", "", "", nil, &c.wants, idleLimit, creationLimit, remotecommand.SupportedStreamingProtocols)
}

func (s *Server) serveAttach(w http.ResponseWriter, r *http.Request, req *runtime.AttachRequest) {
	c := &command{wants: toOptions(req), run: func(ctx context.Context, streams session.Streams) (int32, error) {
		return 0, s.o.Sessions.Attach(ctx, req.GetContainerId(), streams)
	}}
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		s.serveV5(w, r, c)
		return
	}
	remotecommand.ServeAttach(w, r, c, "", "", "", &c.wants, idleLimit, creationLimit, remotecommand.SupportedStreamingProtocols)
}

func toOptions(r wants) remotecommand.Options {
	return remotecommand.Options{Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr(), TTY: r.GetTty()}
}

// streams are the client's ends. Only what was asked for counts: over a WebSocket there are others,
// which are at their end from the start.
func (c *command) streams(in io.Reader, out, errs io.Writer, nextSize func() (uint16, uint16, bool)) session.Streams {
	s := session.Streams{TTY: c.wants.TTY, NextSize: nextSize}
	if c.wants.Stdin {
		s.Stdin = in
	}
	if c.wants.Stdout {
		s.Stdout = out
	}
	if c.wants.Stderr {
		s.Stderr = errs
	}
	return s
}

// ExecInContainer implements remotecommand.Executor. What identifies the container there is not
// used.
func (c *command) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader, out, errs io.WriteCloser,
	_ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	code, err := c.run(ctx, c.streams(in, out, errs, sizes(resize)))
	if err != nil {
		return err
	}
	if code != 0 {
		return exec.CodeExitError{Code: process.ExitCode(int(code)), Err: fmt.Errorf("command ended with exit code %d", code)}
	}
	return nil
}

// AttachContainer implements remotecommand.Attacher.
func (c *command) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errs io.WriteCloser,
	_ bool, resize <-chan remotecommand.TerminalSize) error {
	_, err := c.run(ctx, c.streams(in, out, errs, sizes(resize)))
	return err
}

func sizes(from <-chan remotecommand.TerminalSize) func() (width, height uint16, ok bool) {
	if from == nil {
		return nil
	}
	return func() (uint16, uint16, bool) {
		size, ok := <-from
		return size.Width, size.Height, ok
	}
}
