package agent

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (s *server) UpdateContainerResources(ctx context.Context, r *runtime.UpdateContainerResourcesRequest) (*runtime.UpdateContainerResourcesResponse, error) {
	return &runtime.UpdateContainerResourcesResponse{}, s.enter(ctx, "UpdateContainerResources", fmt.Sprint(r.GetLinux().GetCpuQuota()))
}

func (s *server) UpdatePodSandboxResources(ctx context.Context, r *runtime.UpdatePodSandboxResourcesRequest) (*runtime.UpdatePodSandboxResourcesResponse, error) {
	return &runtime.UpdatePodSandboxResourcesResponse{}, s.enter(ctx, "UpdatePodSandboxResources", r.PodSandboxId)
}

func (s *server) PodSandboxStats(ctx context.Context, r *runtime.PodSandboxStatsRequest) (*runtime.PodSandboxStatsResponse, error) {
	if err := s.enter(ctx, "PodSandboxStats", r.PodSandboxId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.sandboxes[r.PodSandboxId]
	if have == nil {
		return nil, fmt.Errorf("sandbox %q: %w", r.PodSandboxId, errdefs.ErrNotFound)
	}
	linux := &runtime.LinuxPodSandboxStats{Memory: &runtime.MemoryUsage{}}
	for _, c := range s.containers {
		if c.sandbox != r.PodSandboxId || c.State != runtime.ContainerState_CONTAINER_RUNNING {
			continue
		}
		memory, layer := uint64(s.memory[c.Metadata.Name]), uint64(s.layers[c.Metadata.Name])
		linux.Memory.WorkingSetBytes = &runtime.UInt64Value{Value: linux.Memory.WorkingSetBytes.GetValue() + memory}
		linux.Memory.UsageBytes = linux.Memory.WorkingSetBytes
		linux.Containers = append(linux.Containers, &runtime.ContainerStats{
			Attributes:    &runtime.ContainerAttributes{Id: c.Id, Metadata: c.Metadata},
			Memory:        &runtime.MemoryUsage{WorkingSetBytes: &runtime.UInt64Value{Value: memory}, UsageBytes: &runtime.UInt64Value{Value: memory}},
			WritableLayer: &runtime.FilesystemUsage{UsedBytes: &runtime.UInt64Value{Value: layer}},
		})
	}
	return &runtime.PodSandboxStatsResponse{Stats: &runtime.PodSandboxStats{Linux: linux}}, nil
}

func (s *server) ReopenContainerLog(ctx context.Context, r *runtime.ReopenContainerLogRequest) (*runtime.ReopenContainerLogResponse, error) {
	if err := s.enter(ctx, "ReopenContainerLog", r.ContainerId); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[r.ContainerId]
	if c == nil {
		return nil, fmt.Errorf("container %q: %w", r.ContainerId, errdefs.ErrNotFound)
	}
	return &runtime.ReopenContainerLogResponse{}, os.WriteFile(c.LogPath, nil, 0o640)
}

func (s *server) ExecSync(ctx context.Context, r *runtime.ExecSyncRequest) (*runtime.ExecSyncResponse, error) {
	if err := s.enter(ctx, "ExecSync", r.Cmd[0]); err != nil {
		return nil, err
	}
	switch r.Cmd[0] {
	case "false":
		return &runtime.ExecSyncResponse{ExitCode: 1, Stderr: []byte("no luck")}, nil
	case "hang":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &runtime.ExecSyncResponse{}, nil
}

func (s *server) ImageStatus(ctx context.Context, r *runtime.ImageStatusRequest) (*runtime.ImageStatusResponse, error) {
	name := r.GetImage().GetImage()
	if r.GetImage().GetUserSpecifiedImage() != "" { // for a container, not to find what may be removed
		if err := s.enter(ctx, "ImageStatus", name); err != nil {
			return nil, err
		}
		s.handled("ImageStatus", r.GetImage())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.images[name] {
		return &runtime.ImageStatusResponse{}, nil
	}
	return &runtime.ImageStatusResponse{Image: &runtime.Image{Id: name, Size: 1000}}, nil
}

func (s *server) PullImage(ctx context.Context, r *runtime.PullImageRequest) (*runtime.PullImageResponse, error) {
	name := r.GetImage().GetImage()
	s.mu.Lock()
	s.pulls++
	s.most = max(s.most, s.pulls)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.pulls--; s.mu.Unlock() }()
	s.handled("PullImage", r.GetImage())
	if err := s.enter(ctx, "PullImage", name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images[name] = true
	return &runtime.PullImageResponse{ImageRef: name}, nil
}

// handled notes for which handler an image was asked for.
func (s *server) handled(call string, image *runtime.ImageSpec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = append(s.handlers, call+" "+image.GetImage()+" "+image.GetRuntimeHandler())
}
