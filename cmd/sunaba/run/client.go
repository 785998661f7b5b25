package run

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	connectTime = 5 * time.Second
	maxMessage  = 16 << 20 // as the kubelet's client
	maxSunPath  = 107
)

// client is a connection to a CRI server.
type client struct {
	runtime.RuntimeServiceClient
	images   runtime.ImageServiceClient
	conn     *grpc.ClientConn
	handlers []string // as Status lists them; "" among them
}

// connect asks the server for its status, so that it answers, and for its
// handlers.
func connect(ctx context.Context, socket string) (*client, error) {
	conn, err := grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithContextDialer(dialUnix))
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w", socket, err)
	}
	c := &client{RuntimeServiceClient: runtime.NewRuntimeServiceClient(conn), images: runtime.NewImageServiceClient(conn), conn: conn}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	status, err := c.Status(ctx, &runtime.StatusRequest{})
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w: %w", socket, fromGRPC(err), conn.Close())
	}
	for _, h := range status.GetRuntimeHandlers() {
		c.handlers = append(c.handlers, h.GetName())
	}
	return c, nil
}

func (c *client) Close() error { return c.conn.Close() }

// dialUnix dials sockets whose path is longer than a socket address too.
func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	if len(path) <= maxSunPath {
		return d.DialContext(ctx, "unix", path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return d.DialContext(ctx, "unix", filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path)))
}

// fromGRPC gives an error of a call its class back.
func fromGRPC(err error) error {
	if err == nil {
		return nil
	}
	return errgrpc.ToNative(err)
}
