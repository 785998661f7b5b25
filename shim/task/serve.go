package task

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/message"
)

// lastAnswer is how long the answer to Shutdown may take to leave.
const lastAnswer = time.Second

// Serve answers on the listener until Shutdown was asked and no container is left. SIGTERM and
// SIGINT mean the same: a shim with containers stays, because no other process knows them.
func Serve(ctx context.Context, listener net.Listener, o Options) error {
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	answers := &watchedListener{Listener: listener, written: make(chan struct{}, 1)}
	done := make(chan struct{})
	o.Done = func() { // within the call whose answer is the last
		answers.ending.Store(true)
		close(done)
	}
	s := New(o)
	s.Register(server)
	successor{s}.adoptAll(ctx)

	ends := make(chan os.Signal, 1)
	signal.Notify(ends, unix.SIGTERM, unix.SIGINT)
	defer signal.Stop(ends)

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ctx, answers) }()
	signalled := false
	for {
		select {
		case <-ends:
			signalled = true
			s.shutdown()
			continue
		case <-done:
			if !signalled {
				answers.flush()
			}
		case err = <-failed:
			if errors.Is(err, ttrpc.ErrServerClosed) {
				err = nil
			}
		}
		if o.Ending != nil && (err == nil || o.Supervisor == nil) { // a successor needs the socket
			o.Ending()
		}
		return errors.Join(err, server.Close())
	}
}

// Register offers the service on a ttrpc server: the Task API in both versions, whose messages are
// alike on the wire, and what our own callers ask beyond it.
func (s *Service) Register(server *ttrpc.Server) {
	t := taskAPI{s}
	methods := &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"State":      unary(t.state),
		"Create":     unary(t.create),
		"Start":      unary(t.start),
		"Delete":     unary(t.delete),
		"Pids":       unary(t.pids),
		"Pause":      unary(t.pause),
		"Resume":     unary(t.resume),
		"Checkpoint": unary(t.checkpoint),
		"Kill":       unary(t.kill),
		"Exec":       unary(t.exec),
		"ResizePty":  unary(t.resizePty),
		"CloseIO":    unary(t.closeIO),
		"Update":     unary(t.update),
		"Wait":       unary(t.wait),
		"Stats":      unary(t.stats),
		"Connect":    unary(t.connect),
		"Shutdown":   unary(t.shutdown),
	}}
	server.RegisterService(api.TaskService, methods)
	server.RegisterService(api.TaskServiceV2, methods)
	extra := extraAPI{s}
	server.RegisterService(api.ExtraService, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		api.MethodReopen:    unary(extra.reopenLog),
		api.MethodDetails:   unary(extra.details),
		api.MethodAttach:    unary(extra.attach),
		api.MethodPrepare:   unary(extra.prepare),
		api.MethodUnprepare: unary(extra.unprepare),
		api.MethodVacate:    unary(extra.vacate),
		api.MethodLaunch:    unary(t.launch),
		api.MethodHistory:   unary(extra.history),
	}})
}

// unary is a method that takes and gives one message.
func unary[Q, A any](call func(context.Context, *Q) (*A, error)) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (any, error) {
		q, wrapped := new(Q), message.Wrap(nil)
		err := unmarshal(wrapped)
		if err == nil {
			err = message.Unwrap(wrapped, q)
		}
		if err != nil {
			return nil, fmt.Errorf("decode request: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		a, err := call(ctx, q)
		if err != nil {
			return nil, api.ToStatus(err)
		}
		return message.Wrap(message.Marshal(a)), nil
	}
}

// watchedListener sees answers leave, so that the shim ends right after its last one
// and not a polling interval later.
type watchedListener struct {
	net.Listener
	ending  atomic.Bool
	written chan struct{}
}

func (l *watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{conn, l}, nil
}

// flush returns when the answer to the call that ended the service has been written.
func (l *watchedListener) flush() {
	select {
	case <-l.written:
	case <-time.After(lastAnswer):
	}
}

type watchedConn struct {
	net.Conn
	listener *watchedListener
}

func (c *watchedConn) Write(p []byte) (int, error) {
	last := c.listener.ending.Load() // asked before: an earlier answer may be read, and answered by Shutdown, before its Write returns
	n, err := c.Conn.Write(p)
	if last {
		select {
		case c.listener.written <- struct{}{}:
		default:
		}
	}
	return n, err
}
