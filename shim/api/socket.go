package api

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxSocketPath is what sockaddr_un holds, without the closing NUL.
const maxSocketPath = 107

// Listen makes a listening unix socket at path (mode 0600), which may be longer than an address can
// hold. The file stays when the listener is closed.
func Listen(path string) (*net.UnixListener, error) {
	var l net.Listener
	err := withShortPath(path, func(short string) (err error) {
		l, err = net.Listen("unix", short)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", path, err)
	}
	ul := l.(*net.UnixListener)
	ul.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		ul.Close()
		os.Remove(path)
		return nil, err
	}
	return ul, nil
}

// Dial connects to the unix socket at path, which may be longer than an address can hold.
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

// withShortPath calls fn with a path to the same file that fits into a socket address.
func withShortPath(path string, fn func(short string) error) error {
	if len(path) <= maxSocketPath {
		return fn(path)
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(dir)
	return fn("/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(path))
}
