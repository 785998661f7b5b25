// Package unixhttp speaks HTTP over unix sockets. It stands apart from unixsocket because the shim,
// which every pod pays for, links that and no HTTP.
package unixhttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/host/unixsocket"
)

// Client is a client of one server. The caller closes it.
type Client struct{ http.Client }

// Connect returns a client of the server at a socket, whose path may be of any length, once a
// server was seen to listen there.
//
// # Errors
//
// ErrUnavailable if no server listens on the socket; else those of unixsocket.Dial.
func Connect(ctx context.Context, path string) (*Client, error) {
	conn, err := unixsocket.Dial(ctx, path)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrUnavailable)
	}
	if err != nil {
		return nil, err
	}
	if err := conn.Close(); err != nil {
		return nil, err
	}
	return &Client{http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return unixsocket.Dial(ctx, path) },
	}}}, nil
}

// Close closes the connections.
func (c *Client) Close() error {
	c.CloseIdleConnections()
	return nil
}
