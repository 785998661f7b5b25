package images

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/sunaba-project/sunaba/images/unpack"
)

// PrepareRootFS makes a writable root for a container and returns what is to be
// mounted for it. The key, such as a container id, keeps what the image consists
// of until RemoveRootFS; calling again with the same key gives the same root. A
// Module has no root filesystem: its key keeps the module, and there is nothing
// to mount.
//
// # Errors
//
// ErrNotFound if the image is not present any more; ErrAlreadyExists if the key
// is that of a root of another image.
func (s *Service) PrepareRootFS(ctx context.Context, key string, img Image) ([]mount.Mount, error) {
	return s.prepareRootFS(ctx, s.layers.Prepare, key, img, map[string]string{})
}

// PrepareMappedRootFS is PrepareRootFS for a container with a user namespace of
// its own: the mounts carry the options uidmap= and gidmap=, by which who mounts
// them shows the image's owners as they are in there. A mapping is
// "inside:outside:length" and begins with the namespace's root.
func (s *Service) PrepareMappedRootFS(ctx context.Context, key string, img Image, uidmap, gidmap string) ([]mount.Mount, error) {
	return s.prepareRootFS(ctx, s.layers.Prepare, key, img, unpack.MapLabels(uidmap, gidmap))
}

// PrepareView is PrepareRootFS for what a container only reads, such as an image
// that it mounts as a volume: nothing can be written to it. With mappings, "" for
// none, the mounts carry them as PrepareMappedRootFS says.
//
// # Errors
//
// Those of PrepareRootFS, and ErrInvalidArgument for a Module, which has no files.
func (s *Service) PrepareView(ctx context.Context, key string, img Image, uidmap, gidmap string) ([]mount.Mount, error) {
	if img.Kind == Module {
		return nil, fmt.Errorf("view image %s: it is a WebAssembly module and has no files: %w", img.ID, errdefs.ErrInvalidArgument)
	}
	labels := map[string]string{}
	if uidmap != "" || gidmap != "" {
		labels = unpack.MapLabels(uidmap, gidmap)
	}
	return s.prepareRootFS(ctx, s.layers.View, key, img, labels)
}

// prepare is how the layer store makes a root.
type prepare func(ctx context.Context, key string, chain digest.Digest, labels map[string]string) ([]mount.Mount, error)

func (s *Service) prepareRootFS(ctx context.Context, prepare prepare, key string, img Image, labels map[string]string) ([]mount.Mount, error) {
	if key == "" {
		return nil, fmt.Errorf("prepare root filesystem: empty key: %w", errdefs.ErrInvalidArgument)
	}
	s.gc.RLock()
	defer s.gc.RUnlock()
	labels[labelImage] = img.ID
	var chain digest.Digest
	if rec, ok := s.db.State().Images[img.ID]; ok {
		chain = rec.Chain
		if chain != "" && !s.layers.Whole(ctx, chain) {
			if err := s.forget(rec.ID); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("prepare root filesystem %q: image %s is damaged and was dropped; pull it again: %w", key, img.ID, errdefs.ErrNotFound)
		}
		if rec.Module != nil {
			labels[labelModule] = rec.Module.Digest.String()
		}
		if rec.Program != "" {
			labels[labelProgram] = rec.Program.String()
		}
	} else {
		root, err := s.layers.Root(ctx, key)
		if err != nil && !errdefs.IsNotFound(err) {
			return nil, err
		}
		if err != nil || root.Labels[labelImage] != img.ID {
			return nil, fmt.Errorf("prepare root filesystem %q: image %s: %w", key, img.ID, errdefs.ErrNotFound)
		}
		chain, labels = root.Chain, root.Labels
	}
	mounts, err := prepare(ctx, key, chain, labels)
	if err != nil {
		return nil, err
	}
	if labels[labelModule] != "" {
		return nil, nil
	}
	return mounts, nil
}

// WithRootFS calls fn with a directory in which the root of a container can be
// read, during the call: layers, and what has been written since. For a Module
// it is empty. What fn finds there comes from strangers: it opens files through
// os.Root, and only regular ones.
//
// # Errors
//
// ErrNotFound if the key has no root; else fn's error.
func (s *Service) WithRootFS(ctx context.Context, key string, fn func(root string) error) error {
	return s.layers.WithRoot(ctx, key, fn)
}

// ChangeRootFS is WithRootFS for fn that changes the root of a container before its first process is there.
//
// # Errors
//
// Also ErrFailedPrecondition for a root with mapped owners.
func (s *Service) ChangeRootFS(ctx context.Context, key string, fn func(root string) error) error {
	return s.layers.ChangeRoot(ctx, key, fn)
}

// RemoveRootFS removes a container's root and what was written to it, or a view.
// It must not be mounted any more. A key without a root is no error.
func (s *Service) RemoveRootFS(ctx context.Context, key string) error {
	root, err := s.layers.Root(ctx, key)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.layers.Remove(ctx, key); err != nil {
		return err
	}
	if _, ok := s.db.State().Images[root.Labels[labelImage]]; ok {
		return nil
	}
	return s.sweep(ctx, 0) // the image went before its last container
}

// RootFSKeys returns the keys that have a root, sorted.
func (s *Service) RootFSKeys(ctx context.Context) ([]string, error) {
	roots, err := s.layers.Roots(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(roots))
	for i, r := range roots {
		keys[i] = r.Key
	}
	return keys, nil
}

// RootFSUsage returns what has been written to a container's root, in bytes and
// files.
//
// # Errors
//
// ErrNotFound if the key has no root.
func (s *Service) RootFSUsage(ctx context.Context, key string) (bytes, inodes int64, err error) {
	return s.layers.RootUsage(ctx, key)
}

// ModulePath returns where the module of an image of kind Module lies, "" for
// any other image. It stays while the image or a root of it does.
func (s *Service) ModulePath(img Image) string {
	if img.Kind != Module {
		return ""
	}
	return s.content.Path(img.Module.Digest)
}

// FsUsage returns the room that images take, and that the containers' own
// writes take.
func (s *Service) FsUsage(ctx context.Context) (images, containers Usage, err error) {
	layers, roots, err := s.layers.Usage(ctx)
	if err != nil {
		return Usage{}, Usage{}, err
	}
	bytes, inodes, err := s.content.Usage(ctx)
	if err != nil {
		return Usage{}, Usage{}, err
	}
	return Usage{Path: s.root, Bytes: layers.Size + bytes, Inodes: layers.Inodes + inodes},
		Usage{Path: s.root, Bytes: roots.Size, Inodes: roots.Inodes}, nil
}
