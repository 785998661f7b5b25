// Package dial connects the command line to a server.
package dial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/host/unixsocket"
)

const (
	connectTime = 5 * time.Second
	maxMessage  = 16 << 20 // as the kubelet's client
)

// Client is a connection to a CRI server.
type Client struct {
	runtime.RuntimeServiceClient
	Images runtime.ImageServiceClient
	Conn   *grpc.ClientConn
	// Node is what the server said of itself when the connection was made.
	Node *runtime.StatusResponse
}

// Dial returns a connection to a unix socket, whose path may be of any length. It connects with the
// first call.
func Dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithContextDialer(unixsocket.Dial))
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w", socket, err)
	}
	return conn, nil
}

// Connect asks the server at a unix socket for its status, so
// that it answers. It is ErrUnavailable if no server does.
func Connect(ctx context.Context, socket string) (*Client, error) {
	conn, err := Dial(socket)
	if err != nil {
		return nil, err
	}
	c := &Client{RuntimeServiceClient: runtime.NewRuntimeServiceClient(conn), Images: runtime.NewImageServiceClient(conn), Conn: conn}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	if c.Node, err = c.Status(ctx, &runtime.StatusRequest{Verbose: true}); err != nil {
		return nil, errors.Join(noServer(ctx, socket, Native(err)), conn.Close())
	}
	return c, nil
}

// noServer says why there is no connection: gRPC tells of it in the words of its own parts.
func noServer(ctx context.Context, socket string, err error) error {
	conn, dialErr := unixsocket.Dial(ctx, socket)
	switch {
	case dialErr == nil: // it listens, and does not answer as a CRI server
		return errors.Join(fmt.Errorf("ask the server on %q for its status: %w", socket, err), conn.Close())
	case errors.Is(dialErr, syscall.ENOENT), errors.Is(dialErr, syscall.ECONNREFUSED):
		return fmt.Errorf("no server listens on %q: start one with \"sunaba serve\", or give --socket: %w", socket, errdefs.ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", dialErr, errdefs.ErrUnavailable)
}

// Handlers are the names of the server's handlers; "", the default, is among them.
func (c *Client) Handlers() []string {
	var names []string
	for _, h := range c.Node.GetRuntimeHandlers() {
		names = append(names, h.GetName())
	}
	return names
}

// Config is what a server of ours tells of its configuration.
type Config struct {
	StateDir string
	Handlers map[string]struct{ Default bool }
}

// Config is the server's configuration; the zero value if it tells none.
func (c *Client) Config() Config {
	var config Config
	if err := json.Unmarshal([]byte(c.Node.GetInfo()["config"]), &config); err != nil {
		return Config{}
	}
	return config
}

// DefaultHandler is the name of the server's default handler, "" if it does not tell.
func (c *Client) DefaultHandler() string {
	for name, h := range c.Config().Handlers {
		if h.Default {
			return name
		}
	}
	return ""
}

// Close ends the connection.
func (c *Client) Close() error { return c.Conn.Close() }

// Native gives an error of a call its class back.
func Native(err error) error { return errgrpc.ToNative(err) }
