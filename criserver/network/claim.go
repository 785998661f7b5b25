package network

import (
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/unixsocket"
)

// claimBridge makes a bridge this server's, until the socket is closed or the process ends: two
// servers with one bridge would each remove the other's addresses and rules. The claim is the name
// of an abstract socket, which exists once per network namespace. Only root's claim counts: any
// program in the host's network can take the name.
//
// # Errors
//
// ErrFailedPrecondition if another server has the bridge.
func claimBridge(name string, log *slog.Logger) (*net.UnixListener, error) {
	address := &net.UnixAddr{Net: "unix", Name: "@sunaba/network/bridge/" + name}
	l, err := net.ListenUnix("unix", address)
	if !errors.Is(err, unix.EADDRINUSE) {
		if err != nil {
			return nil, fmt.Errorf("claim bridge %q: %w", name, err)
		}
		return l, nil
	}
	if uid, err := ownerOf(address); err != nil || uid != 0 {
		log.Warn("failed to claim bridge: a program that is not root's holds its name", "bridge", name, "uid", uid, "error", err)
		return nil, nil
	}
	return nil, fmt.Errorf("bridge %q is another server's: give this one a name of its own, network.bridge in its configuration: %w", name, errdefs.ErrFailedPrecondition)
}

// ownerOf is the user who listens on a socket.
func ownerOf(address *net.UnixAddr) (uid uint32, err error) {
	conn, err := net.DialUnix("unix", nil, address)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	cred, err := unixsocket.Peer(conn)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
