// Package client is CRI v1 over a connection, with the calls of server.Local: errors have the
// classes of errdefs, the status of a sandbox has those of its containers, and Events says when it
// listens. It works with any CRI server.
package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Client asks a CRI server. Its methods may be called at the same time.
type Client struct {
	r runtime.RuntimeServiceClient
	i runtime.ImageServiceClient
}

// Sandboxes are the calls that tell of sandboxes and what they use. A Client has them, and
// server.Local.
type Sandboxes interface {
	ListPodSandbox(context.Context, *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error)
	PodSandboxStatus(context.Context, *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error)
	ListPodSandboxStats(context.Context, *runtime.ListPodSandboxStatsRequest) (*runtime.ListPodSandboxStatsResponse, error)
	ListContainers(context.Context, *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error)
}

// New returns a client of the server at a connection, which stays the caller's.
func New(conn grpc.ClientConnInterface) Client {
	return Client{runtime.NewRuntimeServiceClient(conn), runtime.NewImageServiceClient(conn)}
}

// ask makes a call, and gives its error the class back that its code stands for.
func ask[Q, A any](ctx context.Context, call func(context.Context, Q, ...grpc.CallOption) (A, error), q Q) (A, error) {
	a, err := call(ctx, q)
	if err != nil {
		return a, errgrpc.ToNative(err)
	}
	return a, nil
}

// PodSandboxStatus answers with the statuses of all containers of the sandbox too. A server that
// does not send them (Timestamp is 0 then) is asked for them.
func (c Client) PodSandboxStatus(ctx context.Context, q *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error) {
	a, err := ask(ctx, c.r.PodSandboxStatus, q)
	if err != nil || a.GetTimestamp() != 0 {
		return a, err
	}
	list, err := ask(ctx, c.r.ListContainers, &runtime.ListContainersRequest{Filter: &runtime.ContainerFilter{PodSandboxId: a.GetStatus().GetId()}})
	if err != nil {
		return nil, err
	}
	a.ContainersStatuses = nil
	for _, one := range list.GetContainers() {
		s, err := ask(ctx, c.r.ContainerStatus, &runtime.ContainerStatusRequest{ContainerId: one.GetId()})
		if errdefs.IsNotFound(err) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		a.ContainersStatuses = append(a.ContainersStatuses, s.GetStatus())
	}
	return a, nil
}

const (
	// silent is how long a server may take to say that it listens. One that does not say so, such
	// as containerd, is taken to listen then, and once more after again.
	silent = time.Second
	again  = 10 * time.Second
	// queued is how many events may wait for f.
	queued = 1024
)

// Events calls f with nil once the server listens, then with each event in its order, until the
// context ends, which is its error, or the stream does. f is called with nil again where an event
// may be missing: what was missed is for the caller to ask for.
//
// # Errors
//
// ErrUnavailable if the stream ended; ErrResourceExhausted for a caller that is so far behind that
// it has missed events; else those of the server.
func (c Client) Events(ctx context.Context, f func(*runtime.ContainerEventResponse)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.r.GetContainerEvents(ctx, &runtime.GetEventsRequest{})
	if err != nil {
		return errgrpc.ToNative(err)
	}
	var receivers sync.WaitGroup
	defer receivers.Wait()
	defer cancel()
	said := make(chan struct{})
	receivers.Go(func() {
		if header, err := stream.Header(); err == nil && header != nil {
			close(said)
		}
	})
	events, ended := make(chan *runtime.ContainerEventResponse, queued), make(chan error, 1)
	receivers.Go(func() { ended <- receive(ctx, stream, events) })
	return follow(ctx, said, events, ended, f)
}

// receive takes events off the stream until it ends.
func receive(ctx context.Context, stream runtime.RuntimeService_GetContainerEventsClient, events chan<- *runtime.ContainerEventResponse) error {
	defer close(events)
	for {
		e, err := stream.Recv()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("follow events: the stream ended: %w", class(err))
		}
		select {
		case events <- e:
		default:
			return fmt.Errorf("follow events: %d are not taken: %w", len(events), errdefs.ErrResourceExhausted)
		}
	}
}

// class is the error of a stream that ended; io.EOF has none.
func class(err error) error {
	if native := errgrpc.ToNative(err); !errdefs.IsUnknown(native) {
		return native
	}
	return fmt.Errorf("%w: %w", err, errdefs.ErrUnavailable)
}

// follow hands on what is received. said is closed if the server says that it listens.
func follow(ctx context.Context, said <-chan struct{}, events <-chan *runtime.ContainerEventResponse, ended <-chan error, f func(*runtime.ContainerEventResponse)) error {
	var later <-chan time.Time
	var first *runtime.ContainerEventResponse
	start := time.NewTimer(silent)
	defer start.Stop()
	select {
	case <-said:
	case <-start.C:
		timer := time.NewTimer(again)
		defer timer.Stop()
		later = timer.C
	case e, more := <-events:
		if !more {
			return <-ended
		}
		first = e
	case <-ctx.Done():
		return ctx.Err()
	}
	hand := func(e *runtime.ContainerEventResponse) {
		if e.GetPodSandboxStatus() == nil {
			e = nil // of a sandbox that the server could not ask
		}
		f(e)
	}
	f(nil)
	if first != nil {
		hand(first)
	}
	for {
		select {
		case e, more := <-events:
			if !more {
				return <-ended
			}
			hand(e)
		case <-later:
			later = nil
			f(nil)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
