package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	snapshot "github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/container/program"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/mount"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/shim/client"
)

// imageVolumes takes a view of every image that the container mounts. The view keeps the image's
// files until the container is removed, also when the image itself is removed before. They are
// mounted by the shim, with the root filesystem.
func (b *builder) imageVolumes(ctx context.Context, in *spec.Input) error {
	volumes, err := spec.ImageVolumes(b.config())
	if err != nil {
		return err
	}
	in.Images = map[int]string{}
	for _, v := range volumes {
		if err := b.imageVolume(ctx, in, v); err != nil {
			return spec.ImageVolumeFailed(v, err)
		}
	}
	return nil
}

func (b *builder) imageVolume(ctx context.Context, in *spec.Input, v spec.ImageVolume) error {
	img, err := b.findImage(ctx, v.Image)
	if err != nil {
		return err
	}
	name := strconv.Itoa(v.Mount)
	key := b.rec.ID + "-image-" + name
	uids, gids := mappings(spec.UserNamespace(b.Pod.Config.Value))
	mounts, err := b.o.Images.PrepareView(ctx, key, img, uids, gids)
	if err != nil {
		return err
	}
	b.rec.ImageVolumes = append(b.rec.ImageVolumes, state.ImageVolume{
		Mount: v.Mount, ImageID: img.ID, ImageRef: ImageRef(img), SnapshotKey: key, Mounts: toMounts(mounts),
	})
	path := client.ImagePath(filepath.Join(b.Sandbox.Dir, b.rec.ID), name)
	if v.SubPath != "" {
		err = b.o.Images.WithRootFS(ctx, key, func(root string) error {
			sub, err := resolveSubPath(root, v.SubPath)
			path = filepath.Join(path, sub)
			return err
		})
	}
	in.Images[v.Mount] = path
	return err
}

// findImage finds an image that is here: a volume's is never fetched now, the client has pulled it
// with its credentials.
func (b *builder) findImage(ctx context.Context, name string) (images.Image, error) {
	img, err := b.o.Images.Find(ctx, name, b.Pod.HandlerName)
	if errdefs.IsNotFound(err) {
		img, err = b.o.Images.Find(ctx, name, "")
	}
	if errdefs.IsNotFound(err) {
		return img, fmt.Errorf("it is not present, pull it first: %w", errdefs.ErrNotFound)
	}
	if err != nil {
		return img, err
	}
	return img, b.o.Images.Permit(img, b.Pod.Config.Value.GetMetadata().GetNamespace())
}

// resolveSubPath returns where a path of an image leads to, as a container with that root would see
// it, below root and free of symbolic links. An image never changes, so the answer holds.
//
// # Errors
//
// ErrNotFound; ErrInvalidArgument for what is neither a folder nor a regular file.
func resolveSubPath(root, sub string) (string, error) {
	found, err := program.LookUp(root, sub)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return "", fmt.Errorf("sub-path %q is not in the image: %w", sub, errdefs.ErrNotFound)
	case err != nil:
		return "", fmt.Errorf("find sub-path %q: %w: %w", sub, err, errdefs.ErrInvalidArgument)
	case !found.Mode.IsDir() && !found.Mode.IsRegular():
		return "", fmt.Errorf("sub-path %q is neither a folder nor a regular file: %w", sub, errdefs.ErrInvalidArgument)
	}
	return strings.TrimPrefix(found.Path, "/"), nil
}

// mappings writes a user namespace's ids as the image store takes them, "" for the host's.
func mappings(ids *spec.IDMappings) (uids, gids string) {
	if ids == nil {
		return "", ""
	}
	mapping := func(m specs.LinuxIDMapping) string { return fmt.Sprintf("%d:%d:%d", m.ContainerID, m.HostID, m.Size) }
	return mapping(ids.UID), mapping(ids.GID)
}

func toMounts(mounts []snapshot.Mount) []mount.Mount {
	var out []mount.Mount
	for _, m := range mounts {
		out = append(out, mount.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	return out
}

// ImageRef is the reference of an image by digest, or its id.
func ImageRef(img images.Image) string {
	if len(img.RepoDigests) > 0 {
		return img.RepoDigests[0]
	}
	return img.ID
}
