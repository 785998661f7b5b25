package server

import (
	"context"
	"log/slog"
	"sync"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/caller"
	"github.com/sunaba-project/sunaba/criserver/state"
)

// Stop is a request of another process that stops or removes what runs.
type Stop struct {
	// Labels and Annotations are those of the sandbox. Container is the name of the container that
	// is stopped, "" for all of the sandbox.
	Labels, Annotations map[string]string
	Container           string
	// Process made the request, if it is Known.
	Process caller.Process
	Known   bool
}

// maxStops is how many requests a listener may be behind; what is more is not told.
const maxStops = 64

// stops tells who stops what runs, from outside of this process. Without a listener nothing is
// looked up.
type stops struct {
	sandboxes interface {
		Get(string) (state.Sandbox, error)
	}
	containers interface {
		Get(string) (state.Container, error)
	}
	logger *slog.Logger

	mu   sync.Mutex
	told chan Stop // nil without a listener
}

// Stops calls f with each request of another process that stops or removes something that runs,
// before it is served, until the context ends. There may be one listener.
func (s *Server) Stops(ctx context.Context, f func(Stop)) {
	told := make(chan Stop, maxStops)
	s.stops.listen(told)
	defer s.stops.listen(nil)
	for {
		select {
		case stop := <-told:
			f(stop)
		case <-ctx.Done():
			return
		}
	}
}

func (s *stops) listen(told chan Stop) {
	s.mu.Lock()
	s.told = told
	s.mu.Unlock()
}

// see looks whether a request stops something that runs.
func (s *stops) see(ctx context.Context, req any) {
	var container, sandbox string
	switch r := req.(type) {
	case *runtime.StopContainerRequest:
		container = r.GetContainerId()
	case *runtime.RemoveContainerRequest:
		container = r.GetContainerId()
	case *runtime.StopPodSandboxRequest:
		sandbox = r.GetPodSandboxId()
	case *runtime.RemovePodSandboxRequest:
		sandbox = r.GetPodSandboxId()
	default:
		return
	}
	s.mu.Lock()
	told := s.told
	s.mu.Unlock()
	if told == nil {
		return
	}
	var stop Stop
	if container != "" {
		c, err := s.containers.Get(container)
		if err != nil || c.Phase != state.Running {
			return
		}
		sandbox, stop.Container = c.SandboxID, c.Config.Value.GetMetadata().GetName()
	}
	sb, err := s.sandboxes.Get(sandbox)
	if err != nil || container == "" && sb.Phase != state.Ready {
		return
	}
	stop.Labels, stop.Annotations = sb.Config.Value.GetLabels(), sb.Config.Value.GetAnnotations()
	stop.Process, stop.Known = caller.Of(ctx)
	select {
	case told <- stop:
	default:
		s.logger.Warn("failed to tell who stops a container or sandbox: the agent is too slow", "sandbox", sandbox, "process", stop.Process.PID)
	}
}
