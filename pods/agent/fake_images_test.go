package agent

import (
	"context"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (s *server) ListImages(context.Context, *runtime.ListImagesRequest) (*runtime.ListImagesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &runtime.ListImagesResponse{}
	for name := range s.images {
		resp.Images = append(resp.Images, &runtime.Image{Id: name, RepoTags: []string{name}, Size: 1000})
	}
	return resp, nil
}

func (s *server) RemoveImage(_ context.Context, r *runtime.RemoveImageRequest) (*runtime.RemoveImageResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.images, r.Image.Image)
	return &runtime.RemoveImageResponse{}, nil
}

func (s *server) ImageFsInfo(context.Context, *runtime.ImageFsInfoRequest) (*runtime.ImageFsInfoResponse, error) {
	return &runtime.ImageFsInfoResponse{}, nil
}

func (s *server) ListContainers(context.Context, *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &runtime.ListContainersResponse{}
	for id, c := range s.containers {
		resp.Containers = append(resp.Containers, &runtime.Container{Id: id, Metadata: c.Metadata, ImageId: c.GetImage().GetImage()})
	}
	return resp, nil
}

func (s *server) ContainerStatus(context.Context, *runtime.ContainerStatusRequest) (*runtime.ContainerStatusResponse, error) {
	return &runtime.ContainerStatusResponse{}, nil
}
