// Package unixhttp speaks HTTP over unix sockets. It stands apart from unixsocket because the shim,
// which every pod pays for, links that and no HTTP.
package unixhttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"

	"github.com/sunaba-project/sunaba/host/unixsocket"
)

// Connect returns a client of the server at a socket, whose path may be of any length, once a
// server was seen to listen there. The caller closes its idle connections.
//
// # Errors
//
// Those of unixsocket.Dial; NoServer tells that nobody listens.
func Connect(ctx context.Context, path string) (*http.Client, error) {
	conn, err := unixsocket.Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := conn.Close(); err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return unixsocket.Dial(ctx, path) },
	}}, nil
}

// NoServer says of an error of Connect that no server listens on the socket.
func NoServer(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}
