package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"

	"github.com/sunaba-project/sunaba/shim/api"
)

// A connection to the shim of one pod ends once, with the shim. The connection to a supervised shim
// is made again when it has broken: the supervisor holds the listening socket, so that succeeds at
// once, and calls wait until the successor answers. It ends when nobody listens any more. Calls
// that were under way are repeated if they may be.

// connect makes a connection the client's.
func (c *Client) connect(conn net.Conn) {
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
func (c *Client) lose(rpc *ttrpc.Client) {
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
func (c *Client) end() {
	if c.onGone != nil {
		c.onGone()
	}
	close(c.back)
	close(c.done)
}

// queueFull is how long a connection is not tried again that found the socket's queue full.
const queueFull = 20 * time.Millisecond

// again connects to the successor of a shim that has died.
func (c *Client) again() {
	for {
		conn, err := api.Dial(context.Background(), c.socket)
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
func (c *Client) greet() {
	if err := c.hear(context.Background(), c.call); err == nil && c.succeeded != nil {
		c.succeeded(c.PID())
	}
}

// ExplainMissing says why a supervised shim does not know a process that it was asked about: it may
// have died, and its successor adopts no commands of Exec. Other errors are returned as they are.
func (c *Client) ExplainMissing(err error) error {
	if c.supervisor != 0 && errdefs.IsNotFound(err) {
		return fmt.Errorf("the container has ended, or the shim has died and its successor has killed the command: %w", errdefs.ErrUnavailable)
	}
	return err
}

// current returns the connection, and waits while there is none.
//
// # Errors
//
// ErrUnavailable when there will be none; the context's.
func (c *Client) current(ctx context.Context) (*ttrpc.Client, error) {
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
func (c *Client) ask(ctx context.Context, service, method string, req, resp proto.Message) error {
	_, err := c.once(ctx, service, method, req, resp)
	return err
}

// repeat is ask for calls that may be made twice: it is made again when the answer was lost and the
// shim has a successor.
func (c *Client) repeat(ctx context.Context, service, method string, req, resp proto.Message) error {
	for {
		if lost, err := c.once(ctx, service, method, req, resp); !lost {
			return err
		}
	}
}

// once is ask, and says whether the answer was lost with the connection. A shim that hangs, or was
// stopped, holds nothing up longer than the call may take.
func (c *Client) once(ctx context.Context, service, method string, req, resp proto.Message) (lost bool, err error) {
	within, cancel := ctx, context.CancelFunc(func() {})
	limit, asked := answerLimit(method), time.Now()
	if limit > 0 {
		within, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	rpc, err := c.current(within)
	if err == nil {
		err = rpc.Call(within, service, method, req, resp)
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
