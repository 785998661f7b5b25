package server

import (
	"context"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Local is CRI v1 for callers in this process: the same calls, without gRPC. Errors have the
// classes of errdefs. It may be used once Recover has returned.
type Local struct{ *service }

// Local returns the calls for callers in this process.
func (s *Server) Local() Local { return Local{s.service} }

// Events calls f with nil once it listens, then with each event in its order, until the context
// ends, which is its error, or the server stops.
//
// # Errors
//
// ErrResourceExhausted for a caller that is so far behind that it has missed events.
func (l Local) Events(ctx context.Context, f func(*runtime.ContainerEventResponse)) error {
	return l.follow(ctx, func() error { f(nil); return nil }, func(event *runtime.ContainerEventResponse) error { f(event); return nil })
}

// follow calls listening once no event is missed any more, then each with every event.
func (a *eventsAPI) follow(ctx context.Context, listening func() error, each func(*runtime.ContainerEventResponse) error) error {
	s, err := a.hub.Subscribe()
	if err != nil {
		return err
	}
	defer s.Close()
	if err := listening(); err != nil {
		return err
	}
	for {
		select {
		case event, ok := <-s.Events():
			if !ok {
				return s.Err()
			}
			if err := each(event); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
