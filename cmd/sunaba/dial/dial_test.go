package dial

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// statusServer answers Status and nothing else.
type statusServer struct {
	runtime.UnimplementedRuntimeServiceServer
}

func (statusServer) Status(context.Context, *runtime.StatusRequest) (*runtime.StatusResponse, error) {
	return &runtime.StatusResponse{RuntimeHandlers: []*runtime.RuntimeHandler{{Name: ""}, {Name: "runc"}},
		Info: map[string]string{"config": `{"stateDir":"/run/x","handlers":{"runc":{"default":true},"wasm":{"default":false}}}`}}, nil
}

func TestConnect(t *testing.T) {
	for name, dir := range map[string]string{"short": "s", "longer than a socket address": strings.Repeat("d", 120)} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), dir)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			d, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/s.sock", d.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer()
			runtime.RegisterRuntimeServiceServer(s, statusServer{})
			go s.Serve(l)
			defer s.Stop()
			c, err := Connect(t.Context(), filepath.Join(dir, "s.sock"))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(c.Handlers(), []string{"", "runc"}) {
				t.Errorf("handlers %q", c.Handlers())
			}
			if c.DefaultHandler() != "runc" || c.Config().StateDir != "/run/x" {
				t.Errorf("default handler %q of %+v", c.DefaultHandler(), c.Config())
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConnectToNothing(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	if _, err := Connect(t.Context(), socket); !errdefs.IsUnavailable(err) ||
		!strings.HasPrefix(err.Error(), fmt.Sprintf(`no server listens on %q: start one with "sunaba serve", or give --socket`, socket)) {
		t.Errorf("error %v", err)
	}
}
