package runc

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/unixsocket"
)

// consoleTime is how long the runtime may take to send the terminal after it has ended: it was sent
// before.
const consoleTime = 5 * time.Second

// console is the socket over which the runtime sends the master of the pty it opened in the
// container. The methods of a nil console do nothing: the process has no terminal.
type console struct {
	dir      string
	handle   *os.File // dir, for a short path to the socket
	listener *net.UnixListener
}

const consoleSocket = "pty.sock"

func newConsole(bundleDir string, wanted bool) (_ *console, err error) {
	if !wanted {
		return nil, nil
	}
	c := &console{}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.dir, err = os.MkdirTemp(bundleDir, "pty-"); err != nil {
		return nil, err
	}
	if c.handle, err = os.Open(c.dir); err != nil {
		return nil, err
	}
	if c.listener, err = unixsocket.Listen(filepath.Join(c.dir, consoleSocket), 0o600); err != nil {
		return nil, err
	}
	return c, nil
}

// Path implements runc.ConsoleSocket. It goes through this process, because bundle directories
// have longer names than a socket's address can hold.
func (c *console) Path() string {
	return "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(c.handle.Fd())) + "/" + consoleSocket
}

// receive takes the terminal, nil without one.
func (c *console) receive(ctx context.Context) (*os.File, error) {
	if c == nil {
		return nil, nil
	}
	deadline := time.Now().Add(consoleTime)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := c.listener.SetDeadline(deadline); err != nil {
		return nil, err
	}
	conn, err := c.listener.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("receive terminal: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	name, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(name, rights)
	if err != nil {
		return nil, fmt.Errorf("receive terminal: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) == 0 {
		return nil, errNoTerminal
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return nil, errNoTerminal
	}
	unix.CloseOnExec(fds[0])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "ptmx"), nil
}

func (c *console) close() {
	if c == nil {
		return
	}
	if c.listener != nil {
		c.listener.Close()
	}
	if c.handle != nil {
		c.handle.Close()
	}
	if c.dir != "" {
		os.RemoveAll(c.dir)
	}
}
