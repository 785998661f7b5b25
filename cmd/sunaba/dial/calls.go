package dial

import (
	"context"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Calls are the calls of a server that run pods, with errors of errdefs' classes.
type Calls struct{ c *Client }

// Calls are the client's.
func (c *Client) Calls() Calls { return Calls{c} }

func native[T any](answer T, err error) (T, error) { return answer, Native(err) }

// Events calls f with nil once the server has begun to send, then with each event in its order,
// until ctx or the stream ends.
func (c Calls) Events(ctx context.Context, f func(*runtime.ContainerEventResponse)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.c.GetContainerEvents(ctx, &runtime.GetEventsRequest{})
	if err == nil {
		_, err = stream.Header()
	}
	for event := (*runtime.ContainerEventResponse)(nil); err == nil; event, err = stream.Recv() {
		f(event)
	}
	return Native(err)
}

// RunPodSandbox is the server's.
func (c Calls) RunPodSandbox(ctx context.Context, r *runtime.RunPodSandboxRequest) (*runtime.RunPodSandboxResponse, error) {
	return native(c.c.RunPodSandbox(ctx, r))
}

// StopPodSandbox is the server's.
func (c Calls) StopPodSandbox(ctx context.Context, r *runtime.StopPodSandboxRequest) (*runtime.StopPodSandboxResponse, error) {
	return native(c.c.StopPodSandbox(ctx, r))
}

// RemovePodSandbox is the server's.
func (c Calls) RemovePodSandbox(ctx context.Context, r *runtime.RemovePodSandboxRequest) (*runtime.RemovePodSandboxResponse, error) {
	return native(c.c.RemovePodSandbox(ctx, r))
}

// ListPodSandbox is the server's.
func (c Calls) ListPodSandbox(ctx context.Context, r *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	return native(c.c.ListPodSandbox(ctx, r))
}

// PodSandboxStatus is the server's.
func (c Calls) PodSandboxStatus(ctx context.Context, r *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error) {
	return native(c.c.PodSandboxStatus(ctx, r))
}

// CreateContainer is the server's.
func (c Calls) CreateContainer(ctx context.Context, r *runtime.CreateContainerRequest) (*runtime.CreateContainerResponse, error) {
	return native(c.c.CreateContainer(ctx, r))
}

// StartContainer is the server's.
func (c Calls) StartContainer(ctx context.Context, r *runtime.StartContainerRequest) (*runtime.StartContainerResponse, error) {
	return native(c.c.StartContainer(ctx, r))
}

// StopContainer is the server's.
func (c Calls) StopContainer(ctx context.Context, r *runtime.StopContainerRequest) (*runtime.StopContainerResponse, error) {
	return native(c.c.StopContainer(ctx, r))
}

// RemoveContainer is the server's.
func (c Calls) RemoveContainer(ctx context.Context, r *runtime.RemoveContainerRequest) (*runtime.RemoveContainerResponse, error) {
	return native(c.c.RemoveContainer(ctx, r))
}

// UpdateContainerResources is the server's.
func (c Calls) UpdateContainerResources(ctx context.Context, r *runtime.UpdateContainerResourcesRequest) (*runtime.UpdateContainerResourcesResponse, error) {
	return native(c.c.UpdateContainerResources(ctx, r))
}

// UpdatePodSandboxResources is the server's.
func (c Calls) UpdatePodSandboxResources(ctx context.Context, r *runtime.UpdatePodSandboxResourcesRequest) (*runtime.UpdatePodSandboxResourcesResponse, error) {
	return native(c.c.UpdatePodSandboxResources(ctx, r))
}

// ReopenContainerLog is the server's.
func (c Calls) ReopenContainerLog(ctx context.Context, r *runtime.ReopenContainerLogRequest) (*runtime.ReopenContainerLogResponse, error) {
	return native(c.c.ReopenContainerLog(ctx, r))
}

// ExecSync is the server's.
func (c Calls) ExecSync(ctx context.Context, r *runtime.ExecSyncRequest) (*runtime.ExecSyncResponse, error) {
	return native(c.c.ExecSync(ctx, r))
}

// ImageStatus is the server's.
func (c Calls) ImageStatus(ctx context.Context, r *runtime.ImageStatusRequest) (*runtime.ImageStatusResponse, error) {
	return native(c.c.Images.ImageStatus(ctx, r))
}

// PullImage is the server's.
func (c Calls) PullImage(ctx context.Context, r *runtime.PullImageRequest) (*runtime.PullImageResponse, error) {
	return native(c.c.Images.PullImage(ctx, r))
}
