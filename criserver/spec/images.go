package spec

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// ImageVolume is a mount whose source is an image.
type ImageVolume struct {
	// Mount is its index among the container's mounts.
	Mount int
	// Image is an image's id or reference; SubPath what of it is mounted, clean
	// and relative, "" for all.
	Image, SubPath string
}

// ImageVolumes returns the container's mounts whose source is an image; where
// each is found on the host belongs into Input.Images.
//
// # Errors
//
// ErrInvalidArgument, beginning with the container and the field, for one that
// has another source too, is not read-only or leads out of its image.
func ImageVolumes(container *runtime.ContainerConfig) ([]ImageVolume, error) {
	in := &Input{Container: container}
	var list []ImageVolume
	for i, m := range container.GetMounts() {
		if m.GetImage() == nil {
			if m.GetImageSubPath() != "" {
				return nil, in.invalid(field("mounts", i, "image_sub_path"), "is given without image")
			}
			continue
		}
		sub, err := in.imageVolume(i, m)
		if err != nil {
			return nil, err
		}
		list = append(list, ImageVolume{Mount: i, Image: m.GetImage().GetImage(), SubPath: sub})
	}
	return list, nil
}

func (in *Input) imageVolume(i int, m *runtime.Mount) (subPath string, err error) {
	name := func(f string) string { return field("mounts", i, f) }
	sub := m.GetImageSubPath()
	switch {
	case m.GetImage().GetImage() == "":
		return "", in.invalid(name("image.image"), "is empty")
	case m.GetHostPath() != "":
		return "", in.invalid(name("host_path"), "is %q, but the mount's source is an image", m.GetHostPath())
	case !m.GetReadonly():
		return "", in.invalid(name("readonly"), "must be true for an image")
	case m.GetPropagation() != runtime.MountPropagation_PROPAGATION_PRIVATE:
		return "", in.invalid(name("propagation"), "is %s; an image's can only be PRIVATE", m.GetPropagation())
	case path.IsAbs(sub) || slices.Contains(strings.Split(sub, "/"), "..") || strings.Contains(sub, "\x00"):
		return "", in.invalid(name("image_sub_path"), "%q is not a path below the image's root", sub)
	case sub == "":
		return "", nil
	}
	if sub = path.Clean(sub); sub == "." {
		return "", nil
	}
	return sub, nil
}

// ImageVolumeFailed is an error about an image volume that a client knows by
// the word at its front.
func ImageVolumeFailed(container *runtime.ContainerConfig, v ImageVolume, err error) error {
	in := &Input{Container: container}
	return in.wrap(fmt.Sprintf("mounts[%d].image", v.Mount), fmt.Errorf("%w: image %q: %w", crierrors.ErrImageVolumeMountFailed, v.Image, err))
}

// imageSource is where the shim shows the image of a mount.
func (in *Input) imageSource(i int) (string, error) {
	source, ok := in.Images[i]
	if !ok {
		return "", in.wrap(field("mounts", i, "image"), fmt.Errorf("%w: it is not known where the image is: %w", crierrors.ErrImageVolumeMountFailed, errdefs.ErrFailedPrecondition))
	}
	return source, nil
}
