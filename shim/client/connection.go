package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"

	"github.com/sunaba-project/sunaba/host/trace"
	"github.com/sunaba-project/sunaba/host/unixsocket"
	"github.com/sunaba-project/sunaba/shim/api"
	"github.com/sunaba-project/sunaba/shim/message"
)

// Connection is the connection to a shim.
//
// A connection to the shim of one pod ends once, with the shim. The connection to a supervised shim
// is made again when it has broken: the supervisor holds the listening socket, so that succeeds at
// once, and calls wait until the successor answers. It ends when nobody listens any more. Calls
// that were in progress are repeated if they may be.
type Connection struct {
	pid        atomic.Int64
	supervisor int    // pid
	socket     string // of a supervised shim
	done       chan struct{}
	onGone     func()        // run once, before done is closed
	succeeded  func(pid int) // see StartOptions.Succeeded

	mu     sync.Mutex
	rpc    *ttrpc.Client // nil while there is no connection
	back   chan struct{} // closed when there is one again or will be none; nil while there is one
	closed bool          // by Close
}

// PID is the shim's process id, 0 as long as it is not known. That of a supervised shim changes.
func (c *Connection) PID() int { return int(c.pid.Load()) }

// Supervisor is the process id of the shim's supervisor, 0 if it has none.
func (c *Connection) Supervisor() int { return c.supervisor }

// Done is closed when the connection is lost for good, which is how a caller learns that the shim
// and its supervisor have exited.
func (c *Connection) Done() <-chan struct{} { return c.done }

// Close ends the connection and leaves the shim running.
func (c *Connection) Close() error {
	c.mu.Lock()
	c.closed = true
	rpc := c.rpc
	c.mu.Unlock()
	if rpc != nil {
		return rpc.Close()
	}
	return nil
}

// Answers returns when the shim has answered; PID is known then.
//
// # Errors
//
// ErrUnavailable when it has exited; the context's.
func (c *Connection) Answers(ctx context.Context) error { return c.hear(ctx, c.repeat) }

func (c *Connection) hear(ctx context.Context, call func(context.Context, string, string, any, any) error) error {
	var resp message.ConnectResponse
	if err := call(ctx, api.TaskService, "Connect", &message.ContainerRequest{}, &resp); err != nil {
		return err
	}
	c.pid.Store(int64(resp.ShimPid))
	return nil
}

// connect makes a connection the client's.
func (c *Connection) connect(conn net.Conn) {
	var rpc *ttrpc.Client
	made := make(chan struct{})
	rpc = ttrpc.NewClient(conn, ttrpc.WithOnClose(func() {
		<-made
		c.lose(rpc)
	}))
	c.mu.Lock()
	c.rpc = rpc
	if c.back != nil {
		close(c.back)
		c.back = nil
	}
	closed := c.closed
	c.mu.Unlock()
	close(made)
	if closed {
		rpc.Close()
	}
}

// lose takes note that a connection has ended. It may be told more than once.
func (c *Connection) lose(rpc *ttrpc.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rpc != rpc {
		return
	}
	c.rpc = nil
	c.back = make(chan struct{})
	if c.socket == "" || c.closed {
		c.end()
		return
	}
	go c.again()
}

// end is called once, with the lock, when there will be no connection any more.
func (c *Connection) end() {
	if c.onGone != nil {
		c.onGone()
	}
	close(c.back)
	close(c.done)
}

// queueFull is how long a connection is not retried that found the socket's queue full.
const queueFull = 20 * time.Millisecond

// again connects to the successor of a shim that has died.
func (c *Connection) again() {
	for {
		conn, err := unixsocket.Dial(context.Background(), c.socket)
		switch {
		case err == nil:
			c.connect(conn)
			c.greet()
			return
		case errors.Is(err, syscall.EAGAIN):
			time.Sleep(queueFull)
		default: // ECONNREFUSED or ENOENT: no process has the socket any more
			c.mu.Lock()
			c.end()
			c.mu.Unlock()
			return
		}
	}
}

// greet asks who answers now. A successor that ends before it answers is not reported.
func (c *Connection) greet() {
	if err := c.hear(context.Background(), c.ask); err == nil && c.succeeded != nil {
		c.succeeded(c.PID())
	}
}

// ExplainMissing says why a supervised shim does not know a process that it was asked about: it may
// have died, and its successor adopts no commands of Exec. Other errors are returned as they are.
func (c *Connection) ExplainMissing(err error) error {
	if c.supervisor != 0 && errdefs.IsNotFound(err) {
		return fmt.Errorf("the container has ended, or the shim has died and its successor has killed the command: %w", errdefs.ErrUnavailable)
	}
	return err
}

// current returns the connection, and waits until there is one.
//
// # Errors
//
// ErrUnavailable when there will be none; the context's.
func (c *Connection) current(ctx context.Context) (*ttrpc.Client, error) {
	for {
		c.mu.Lock()
		rpc, back := c.rpc, c.back
		c.mu.Unlock()
		if rpc != nil {
			return rpc, nil
		}
		select {
		case <-c.done:
			return nil, fmt.Errorf("connection to the shim is closed: %w", errdefs.ErrUnavailable)
		default:
		}
		select {
		case <-back:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// ask calls a method and gives errors their class back. A call whose answer was lost with the
// connection is ErrUnavailable.
func (c *Connection) ask(ctx context.Context, service, method string, req, resp any) error {
	_, err := c.once(ctx, service, method, req, resp)
	return err
}

// repeat is ask for calls that may be made twice: it is made again when the answer was lost and the
// shim has a successor.
func (c *Connection) repeat(ctx context.Context, service, method string, req, resp any) error {
	for {
		if lost, err := c.once(ctx, service, method, req, resp); !lost {
			return err
		}
	}
}

// once is ask, and says whether the answer was lost with the connection. A shim that hangs, or was
// stopped, holds nothing up longer than the call may take.
func (c *Connection) once(ctx context.Context, service, method string, req, resp any) (lost bool, err error) {
	ctx, span := trace.Call(ctx, "ttrpc", service, method)
	defer func() { span.End(err) }()
	within, cancel := ctx, context.CancelFunc(func() {})
	limit, asked := answerLimit(method), time.Now()
	if limit > 0 {
		within, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	rpc, err := c.current(within)
	if err == nil {
		answer := message.Wrap(nil)
		if err = rpc.Call(within, service, method, message.Wrap(message.Marshal(req)), answer); err == nil {
			err = message.Unwrap(answer, resp)
		}
		if lost = errors.Is(err, ttrpc.ErrClosed); lost {
			c.lose(rpc)
		}
		err = api.FromStatus(err)
	}
	// By the clock: the shim's answer that the time is over can come before this side's timer.
	if err != nil && limit > 0 && time.Since(asked) >= limit && ctx.Err() == nil {
		return false, fmt.Errorf("shim did not answer %s within %v: %w", method, limit, context.DeadlineExceeded)
	}
	return lost, err
}

// answerLimit is how long a shim may take to answer a method, 0 = any time: calls that start or
// save processes may read or compile much, and a deletion waits for the OCI runtime and file
// systems.
func answerLimit(method string) time.Duration {
	switch method {
	case "Wait":
		return 0
	case api.MethodLaunch, "Create", "Start", "Exec", "Checkpoint":
		return 15 * time.Minute
	case "Delete":
		return 30 * time.Second
	}
	return 10 * time.Second
}

// isGone says of an error of a connection that nobody listens.
func isGone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}
