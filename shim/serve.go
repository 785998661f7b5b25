package shim

import (
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
)

// lastAnswer is how long the answer to Shutdown may take to leave.
const lastAnswer = time.Second

// Serve answers on the listener until Shutdown was asked and no container is left. SIGTERM and
// SIGINT mean the same: a shim with containers stays, because nobody else knows them.
func Serve(ctx context.Context, listener net.Listener, o ServiceOptions) error {
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
	s := NewService(o)
	s.Register(server)
	s.adoptAll(ctx)

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
