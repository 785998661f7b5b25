package client

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"

	"github.com/sunaba-project/sunaba/shim/api"
)

// oldShim is one of a release that had no Launch. It keeps which calls it was asked for.
type oldShim struct {
	calls  []string
	cannot string // a call that fails
}

func (o *oldShim) answer(name string, v any) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (any, error) {
		var req task.CreateTaskRequest // they all begin with the id
		if err := unmarshal(&req); err != nil {
			return nil, err
		}
		o.calls = append(o.calls, name+" "+req.ID)
		if name == o.cannot {
			return nil, api.ToStatus(errors.New("cannot " + name))
		}
		return v, nil
	}
}

func TestLaunchWithAnOldShim(t *testing.T) {
	for cannot, want := range map[string][]string{
		"":       {"Create c", "Start c"},
		"Create": {"Create c"},
		"Start":  {"Create c", "Start c", "Delete c"},
	} {
		t.Run("cannot "+cannot, func(t *testing.T) {
			o := &oldShim{cannot: cannot}
			server, err := ttrpc.NewServer()
			if err != nil {
				t.Fatal(err)
			}
			server.RegisterService(api.TaskService, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
				"Create": o.answer("Create", &task.CreateTaskResponse{Pid: 7}),
				"Start":  o.answer("Start", &task.StartResponse{Pid: 7}),
				"Delete": o.answer("Delete", &task.DeleteResponse{}),
			}})
			listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan struct{})
			go func() { defer close(served); _ = server.Serve(ctx, listener) }()
			t.Cleanup(func() { cancel(); server.Close(); <-served })
			conn, err := net.Dial("unix", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			c := newClient(conn, nil)
			defer c.Close()
			l, err := c.Launch(t.Context(), CreateRequest{ID: "c", Bundle: t.TempDir()})
			if (err != nil) != (cannot != "") || err == nil && (l.PID != 7 || l.Begun.IsZero()) {
				t.Errorf("launched %+v, %v", l, err)
			}
			if !slices.Equal(o.calls, want) {
				t.Errorf("calls %q, want %q", o.calls, want)
			}
		})
	}
}
