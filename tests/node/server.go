package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Server is the process of a server, ours or another's, whose output is added to a file.
type Server struct {
	LogFile string
	cmd     *exec.Cmd
	ended   chan struct{} // closed when it has ended
	exit    error         // how; set before that
}

// RunServer starts a server and does not wait until it answers.
func RunServer(cmd *exec.Cmd, logFile string) (*Server, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s := &Server{LogFile: logFile, cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name(), err)
	}
	go func() {
		s.exit = cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

func (s *Server) name() string { return filepath.Base(s.cmd.Path) }

// Await asks until ask returns no error, for at most limit. The context of ask ends with the
// server. The error of Await has the server's log.
func (s *Server) Await(ctx context.Context, limit time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	asked, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-s.ended:
			stop() // nobody will answer
		case <-ctx.Done():
		}
	}()
	for {
		err := ask(asked)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("%s ended before it was ready: %v\n%s", s.name(), s.exit, s.Log())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w\n%s", s.name(), ctx.Err(), err, s.Log())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Ready is a question for Await: whether a CRI server says that it and its network are ready.
func Ready(c runtime.RuntimeServiceClient) func(context.Context) error {
	return func(ctx context.Context) error {
		status, err := c.Status(ctx, &runtime.StatusRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		return notReady(status.GetStatus().GetConditions())
	}
}

// Answers is a question for Await: whether a CRI server answers at all.
func Answers(c runtime.RuntimeServiceClient) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Version(ctx, &runtime.VersionRequest{}, grpc.WaitForReady(true))
		return err
	}
}

// PID is the server's process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Alive says whether the server still runs.
func (s *Server) Alive() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// Log is what the server has said so far.
func (s *Server) Log() string {
	data, err := os.ReadFile(s.LogFile)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(data))
}

// Signal sends the server a signal and waits for its end. exit says how it ended, as Wait of
// os/exec does.
func (s *Server) Signal(signal syscall.Signal) (exit, err error) {
	if err := s.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return nil, err
	}
	select {
	case <-s.ended:
		return s.exit, nil
	case <-time.After(Slow(Patience)):
		return nil, fmt.Errorf("%s did not end within %v of %v", s.name(), Slow(Patience), signal)
	}
}
