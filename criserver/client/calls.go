package client

import (
	"context"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Status of the server.
func (c Client) Status(ctx context.Context, q *runtime.StatusRequest) (*runtime.StatusResponse, error) {
	return ask(ctx, c.r.Status, q)
}

// RunPodSandbox makes and starts a sandbox.
func (c Client) RunPodSandbox(ctx context.Context, q *runtime.RunPodSandboxRequest) (*runtime.RunPodSandboxResponse, error) {
	return ask(ctx, c.r.RunPodSandbox, q)
}

// StopPodSandbox stops a sandbox with what runs in it.
func (c Client) StopPodSandbox(ctx context.Context, q *runtime.StopPodSandboxRequest) (*runtime.StopPodSandboxResponse, error) {
	return ask(ctx, c.r.StopPodSandbox, q)
}

// RemovePodSandbox removes a sandbox with its containers.
func (c Client) RemovePodSandbox(ctx context.Context, q *runtime.RemovePodSandboxRequest) (*runtime.RemovePodSandboxResponse, error) {
	return ask(ctx, c.r.RemovePodSandbox, q)
}

// PodSandboxStats are what a sandbox and its containers use.
func (c Client) PodSandboxStats(ctx context.Context, q *runtime.PodSandboxStatsRequest) (*runtime.PodSandboxStatsResponse, error) {
	return ask(ctx, c.r.PodSandboxStats, q)
}

// ListPodSandboxStats are what sandboxes and their containers use.
func (c Client) ListPodSandboxStats(ctx context.Context, q *runtime.ListPodSandboxStatsRequest) (*runtime.ListPodSandboxStatsResponse, error) {
	return ask(ctx, c.r.ListPodSandboxStats, q)
}

// ListPodSandbox lists sandboxes.
func (c Client) ListPodSandbox(ctx context.Context, q *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	return ask(ctx, c.r.ListPodSandbox, q)
}

// UpdatePodSandboxResources changes the limits of a sandbox.
func (c Client) UpdatePodSandboxResources(ctx context.Context, q *runtime.UpdatePodSandboxResourcesRequest) (*runtime.UpdatePodSandboxResourcesResponse, error) {
	return ask(ctx, c.r.UpdatePodSandboxResources, q)
}

// CreateContainer makes a container in a sandbox.
func (c Client) CreateContainer(ctx context.Context, q *runtime.CreateContainerRequest) (*runtime.CreateContainerResponse, error) {
	return ask(ctx, c.r.CreateContainer, q)
}

// StartContainer starts a container that was created.
func (c Client) StartContainer(ctx context.Context, q *runtime.StartContainerRequest) (*runtime.StartContainerResponse, error) {
	return ask(ctx, c.r.StartContainer, q)
}

// StopContainer stops a container with a grace period.
func (c Client) StopContainer(ctx context.Context, q *runtime.StopContainerRequest) (*runtime.StopContainerResponse, error) {
	return ask(ctx, c.r.StopContainer, q)
}

// RemoveContainer removes a container.
func (c Client) RemoveContainer(ctx context.Context, q *runtime.RemoveContainerRequest) (*runtime.RemoveContainerResponse, error) {
	return ask(ctx, c.r.RemoveContainer, q)
}

// UpdateContainerResources changes the limits of a container.
func (c Client) UpdateContainerResources(ctx context.Context, q *runtime.UpdateContainerResourcesRequest) (*runtime.UpdateContainerResourcesResponse, error) {
	return ask(ctx, c.r.UpdateContainerResources, q)
}

// ReopenContainerLog has the log of a container opened anew.
func (c Client) ReopenContainerLog(ctx context.Context, q *runtime.ReopenContainerLogRequest) (*runtime.ReopenContainerLogResponse, error) {
	return ask(ctx, c.r.ReopenContainerLog, q)
}

// ExecSync runs a command in a container and waits for its end.
func (c Client) ExecSync(ctx context.Context, q *runtime.ExecSyncRequest) (*runtime.ExecSyncResponse, error) {
	return ask(ctx, c.r.ExecSync, q)
}

// PullImage fetches an image.
func (c Client) PullImage(ctx context.Context, q *runtime.PullImageRequest) (*runtime.PullImageResponse, error) {
	return ask(ctx, c.i.PullImage, q)
}

// ImageStatus says whether an image is there, and what it is.
func (c Client) ImageStatus(ctx context.Context, q *runtime.ImageStatusRequest) (*runtime.ImageStatusResponse, error) {
	return ask(ctx, c.i.ImageStatus, q)
}

// ContainerStatus is the status of a container.
func (c Client) ContainerStatus(ctx context.Context, q *runtime.ContainerStatusRequest) (*runtime.ContainerStatusResponse, error) {
	return ask(ctx, c.r.ContainerStatus, q)
}

// ListContainers lists containers.
func (c Client) ListContainers(ctx context.Context, q *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error) {
	return ask(ctx, c.r.ListContainers, q)
}

// ListImages lists images.
func (c Client) ListImages(ctx context.Context, q *runtime.ListImagesRequest) (*runtime.ListImagesResponse, error) {
	return ask(ctx, c.i.ListImages, q)
}

// ImageFsInfo says what the file systems of images hold.
func (c Client) ImageFsInfo(ctx context.Context, q *runtime.ImageFsInfoRequest) (*runtime.ImageFsInfoResponse, error) {
	return ask(ctx, c.i.ImageFsInfo, q)
}

// RemoveImage removes an image.
func (c Client) RemoveImage(ctx context.Context, q *runtime.RemoveImageRequest) (*runtime.RemoveImageResponse, error) {
	return ask(ctx, c.i.RemoveImage, q)
}
