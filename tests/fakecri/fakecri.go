// Package fakecri serves what a test makes of a CRI server.
package fakecri

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Connect serves s in memory until the end of the test, and returns a connection with it.
func Connect(t testing.TB, s runtime.RuntimeServiceServer) *grpc.ClientConn {
	t.Helper()
	listener, g := bufconn.Listen(1<<20), grpc.NewServer()
	runtime.RegisterRuntimeServiceServer(g, s)
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
