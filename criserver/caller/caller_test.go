package caller

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// server notes who called.
type server struct {
	runtime.UnimplementedRuntimeServiceServer
	process Process
	known   bool
}

func (s *server) Version(ctx context.Context, _ *runtime.VersionRequest) (*runtime.VersionResponse, error) {
	s.process, s.known = Of(ctx)
	return &runtime.VersionResponse{}, nil
}

// The kernel's word is taken for who called by the socket; by TCP it is not known.
func TestOf(t *testing.T) {
	const comm = "/proc/self/comm"
	before, err := os.ReadFile(comm)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(comm, []byte("a\nb \xffc"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(comm, before, 0); err != nil {
			t.Error(err)
		}
	})
	for _, test := range []struct {
		network, address, target string
		want                     Process
		known                    bool
	}{
		{"unix", filepath.Join(t.TempDir(), "sock"), "unix://", Process{int32(os.Getpid()), uint32(os.Getuid()), "a\nb \xffc"}, true},
		{"tcp", "127.0.0.1:0", "passthrough:///", Process{}, false},
	} {
		l, err := net.Listen(test.network, test.address)
		if err != nil {
			t.Fatal(err)
		}
		s, g := &server{}, grpc.NewServer(grpc.Creds(Credentials()))
		runtime.RegisterRuntimeServiceServer(g, s)
		go func() { _ = g.Serve(l) }()
		t.Cleanup(g.Stop)
		conn, err := grpc.NewClient(test.target+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := runtime.NewRuntimeServiceClient(conn).Version(t.Context(), &runtime.VersionRequest{}); err != nil {
			t.Fatal(err)
		}
		if s.process != test.want || s.known != test.known {
			t.Errorf("%s: caller is %+v, %v; want %+v, %v", test.network, s.process, s.known, test.want, test.known)
		}
	}
	if p, known := Of(t.Context()); known {
		t.Errorf("a call within this process has the caller %+v", p)
	}
}
