// Package unixsocket listens on and connects to unix sockets whose paths may be longer than a
// socket address holds.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxPath is what sockaddr_un holds, without the closing NUL.
const maxPath = 107

// Listen makes a listening unix socket at a path, with this mode from the start. The file stays
// when the listener is closed.
func Listen(path string, mode fs.FileMode) (*net.UnixListener, error) {
	// bind(2) makes the file with the socket's mode, less the umask.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		controlled := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), uint32(mode)) })
		return errors.Join(controlled, err)
	}}
	var l net.Listener
	err := withShortPath(path, func(short string) (err error) {
		l, err = config.Listen(context.Background(), "unix", short)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", path, err)
	}
	ul := l.(*net.UnixListener)
	ul.SetUnlinkOnClose(false) // it may have been bound by another name
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, ul.Close(), os.Remove(path))
	}
	return ul, nil
}

// Dial connects to the unix socket at a path.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	var conn net.Conn
	err := withShortPath(path, func(short string) (err error) {
		var d net.Dialer
		conn, err = d.DialContext(ctx, "unix", short)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w", path, err)
	}
	return conn, nil
}

// RemoveDead removes the socket at a path if nobody listens on it, and says whether somebody does. A
// missing one is no error.
func RemoveDead(ctx context.Context, path string) (live bool, err error) {
	conn, err := Dial(ctx, path)
	switch {
	case err == nil:
		return true, conn.Close()
	case errors.Is(err, unix.ECONNREFUSED):
		err = os.Remove(path)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return false, err
}

// Peer asks the kernel for the process at the other end of a connection, or for who listens there:
// as it was when the connection was made.
func Peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("ask for peer of socket: %w", err)
	}
	var cred *unix.Ucred
	controlled := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(controlled, err); err != nil {
		return nil, fmt.Errorf("ask for peer of socket: %w", err)
	}
	return cred, nil
}

// withShortPath calls fn with a path to the same file that fits into a socket address.
func withShortPath(path string, fn func(short string) error) error {
	if len(path) <= maxPath {
		return fn(path)
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(dir)
	return fn("/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(path))
}
