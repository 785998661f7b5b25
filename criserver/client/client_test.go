package client

import (
	"context"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/tests/fakecri"
)

// server answers what a test says.
type server struct {
	runtime.UnimplementedRuntimeServiceServer
	events func(runtime.RuntimeService_GetContainerEventsServer) error
	whole  bool // sends the statuses of containers with that of a sandbox
}

func (s *server) GetContainerEvents(_ *runtime.GetEventsRequest, out runtime.RuntimeService_GetContainerEventsServer) error {
	return s.events(out)
}

func (s *server) PodSandboxStatus(_ context.Context, q *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error) {
	if q.PodSandboxId != "pod" {
		return nil, status.Error(codes.NotFound, "no such sandbox")
	}
	a := &runtime.PodSandboxStatusResponse{Status: &runtime.PodSandboxStatus{Id: "pod"}}
	if s.whole {
		a.Timestamp, a.ContainersStatuses = 1, []*runtime.ContainerStatus{{Id: "one"}}
	}
	return a, nil
}

func (s *server) ListContainers(_ context.Context, q *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error) {
	a := &runtime.ListContainersResponse{}
	if q.GetFilter().GetPodSandboxId() == "pod" {
		a.Containers = []*runtime.Container{{Id: "a"}, {Id: "removed"}, {Id: "b"}}
	}
	return a, nil
}

func (s *server) ContainerStatus(_ context.Context, q *runtime.ContainerStatusRequest) (*runtime.ContainerStatusResponse, error) {
	if q.ContainerId == "removed" {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	return &runtime.ContainerStatusResponse{Status: &runtime.ContainerStatus{Id: q.ContainerId}}, nil
}

func connect(t *testing.T, s *server) Client {
	t.Helper()
	return New(fakecri.Connect(t, s))
}

// A sandbox's status has those of its containers, also from a server that does not send them.
func TestPodSandboxStatus(t *testing.T) {
	for _, test := range []struct {
		whole bool
		want  []string
	}{{true, []string{"one"}}, {false, []string{"a", "b"}}} {
		c := connect(t, &server{whole: test.whole})
		a, err := c.PodSandboxStatus(t.Context(), &runtime.PodSandboxStatusRequest{PodSandboxId: "pod"})
		if err != nil || len(a.ContainersStatuses) != len(test.want) {
			t.Fatalf("%v, %v", a, err)
		}
		for i, id := range test.want {
			if a.ContainersStatuses[i].Id != id {
				t.Errorf("container %d is %s, want %s", i, a.ContainersStatuses[i].Id, id)
			}
		}
		if _, err := c.PodSandboxStatus(t.Context(), &runtime.PodSandboxStatusRequest{PodSandboxId: "x"}); !errdefs.IsNotFound(err) {
			t.Errorf("error %v has not the class of what is not found", err)
		}
		if _, err := c.Status(t.Context(), &runtime.StatusRequest{}); !errdefs.IsNotImplemented(err) {
			t.Errorf("error %v has not the class of what is not implemented", err)
		}
	}
}

func event(id string) *runtime.ContainerEventResponse {
	return &runtime.ContainerEventResponse{ContainerId: id, PodSandboxStatus: &runtime.PodSandboxStatus{Id: "pod"}}
}

// heard follows the events of a server: "-" where f was called with nil. It ends with the stream.
func heard(t *testing.T, events func(runtime.RuntimeService_GetContainerEventsServer) error) (string, error) {
	t.Helper()
	all := ""
	err := connect(t, &server{events: events}).Events(t.Context(), func(e *runtime.ContainerEventResponse) {
		if all += e.GetContainerId(); e == nil {
			all += "-"
		}
	})
	return all, err
}

func TestEvents(t *testing.T) {
	for name, test := range map[string]struct {
		events func(runtime.RuntimeService_GetContainerEventsServer) error
		want   string
		class  func(error) bool
	}{
		"a server that says that it listens": {func(out runtime.RuntimeService_GetContainerEventsServer) error {
			if err := out.SendHeader(metadata.MD{}); err != nil {
				return err
			}
			time.Sleep(silent / 4)
			return out.Send(event("a"))
		}, "-a", errdefs.IsUnavailable},
		"one that does not": {func(out runtime.RuntimeService_GetContainerEventsServer) error {
			time.Sleep(silent + silent/4)
			if err := out.Send(event("a")); err != nil {
				return err
			}
			return out.Send(event("b"))
		}, "-ab", errdefs.IsUnavailable},
		"an event of a sandbox that could not be asked": {func(out runtime.RuntimeService_GetContainerEventsServer) error {
			if err := out.Send(&runtime.ContainerEventResponse{ContainerId: "a"}); err != nil {
				return err
			}
			return out.Send(event("b"))
		}, "--b", errdefs.IsUnavailable},
		"an error of a class": {func(runtime.RuntimeService_GetContainerEventsServer) error {
			return status.Error(codes.ResourceExhausted, "too slow")
		}, "", errdefs.IsResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if all, err := heard(t, test.events); all != test.want || !test.class(err) {
				t.Errorf("heard %q, want %q; error %v", all, test.want, err)
			}
		})
	}
}

// The caller's own end is its context's error, and nothing of the call is left.
func TestEventsEnd(t *testing.T) {
	c := connect(t, &server{events: func(out runtime.RuntimeService_GetContainerEventsServer) error {
		<-out.Context().Done()
		return nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(silent/4, cancel)
	if err := c.Events(ctx, func(*runtime.ContainerEventResponse) { t.Error("called before anything was said") }); err != context.Canceled {
		t.Errorf("error %v", err)
	}
}

// A caller that falls behind is told so, and no event is kept without bound.
func TestEventsTooSlow(t *testing.T) {
	all := 0
	c := connect(t, &server{events: func(out runtime.RuntimeService_GetContainerEventsServer) error {
		for range 3 * queued {
			if err := out.Send(event("a")); err != nil {
				return err
			}
		}
		<-out.Context().Done()
		return nil
	}})
	err := c.Events(t.Context(), func(e *runtime.ContainerEventResponse) {
		if e == nil {
			time.Sleep(silent)
		}
		all++
	})
	if !errdefs.IsResourceExhausted(err) || all > queued+2 { // nil, and one that was taken meanwhile
		t.Errorf("%d events, error %v", all, err)
	}
}
