package server

import (
	"log/slog"

	"google.golang.org/grpc/metadata"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/events"
)

// NewEvents returns the hub of events that follows the records and whose events say what this
// server says when asked.
func NewEvents(logger *slog.Logger) *events.Hub {
	return events.New(events.Options{SandboxStatus: sandboxStatus, ContainerStatus: containerStatus, Logger: logger})
}

// eventsAPI sends events of pods and containers.
type eventsAPI struct{ hub *events.Hub }

func (a *eventsAPI) GetContainerEvents(_ *runtime.GetEventsRequest, out runtime.RuntimeService_GetContainerEventsServer) error {
	return a.follow(out.Context(), func() error { return out.SendHeader(metadata.MD{}) }, out.Send)
}
