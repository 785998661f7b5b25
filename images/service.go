package images

import (
	"context"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
)

// Service is the image store of a node. Its methods are safe for concurrent use.
type Service struct {
}

func Open(o Options) (*Service, error) { return &Service{}, nil }
func (s *Service) Close() error { return nil }
func (s *Service) Pull(ctx context.Context, r PullRequest) (Image, error) { return Image{}, errdefs.ErrNotFound }
func (s *Service) Find(ctx context.Context, nameOrID, handler string) (Image, error) { return Image{}, errdefs.ErrNotFound }
func (s *Service) ForContainer(ctx context.Context, image, userSpecified, handler string) (Image, error) { return Image{}, errdefs.ErrNotFound }
func (s *Service) List(ctx context.Context) ([]Image, error) { return nil, nil }
func (s *Service) Remove(ctx context.Context, nameOrID string) error { return nil }
func (s *Service) PrepareRootFS(ctx context.Context, key string, img Image) ([]mount.Mount, error) { return nil, errdefs.ErrNotFound }
func (s *Service) WithRootFS(ctx context.Context, key string, fn func(root string) error) error { return errdefs.ErrNotFound }
func (s *Service) RemoveRootFS(ctx context.Context, key string) error { return nil }
func (s *Service) RootFSKeys(ctx context.Context) ([]string, error) { return nil, nil }
func (s *Service) RootFSUsage(ctx context.Context, key string) (bytes, inodes int64, err error) { return 0, 0, errdefs.ErrNotFound }
func (s *Service) ModulePath(img Image) string { return "" }
func (s *Service) FsUsage(ctx context.Context) (images, containers Usage, err error) { return }
