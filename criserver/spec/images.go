package spec

import (
	"fmt"
	"path"
	"slices"
	"strings"

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
// ErrInvalidArgument, starting with the field, for one that
// has another source too, is not read-only or leads out of its image.
func ImageVolumes(container *runtime.ContainerConfig) ([]ImageVolume, error) {
	var list []ImageVolume
	for i, m := range container.GetMounts() {
		if m.GetImage() == nil {
			if m.GetImageSubPath() != "" {
				return nil, invalid(field("mounts", i, "image_sub_path"), "is given without image")
			}
			continue
		}
		sub, err := imageSubPath(i, m)
		if err != nil {
			return nil, err
		}
		list = append(list, ImageVolume{Mount: i, Image: m.GetImage().GetImage(), SubPath: sub})
	}
	return list, nil
}

// imageSubPath is the part of an image that a mount shows, clean and relative; "" is all of it.
func imageSubPath(i int, m *runtime.Mount) (string, error) {
	name := func(f string) string { return field("mounts", i, f) }
	sub := m.GetImageSubPath()
	switch {
	case m.GetImage().GetImage() == "":
		return "", invalid(name("image.image"), "is empty")
	case m.GetHostPath() != "":
		return "", invalid(name("host_path"), "is %q, but the mount's source is an image", m.GetHostPath())
	case !m.GetReadonly():
		return "", invalid(name("readonly"), "must be true for an image")
	case m.GetPropagation() != runtime.MountPropagation_PROPAGATION_PRIVATE:
		return "", invalid(name("propagation"), "is %s; an image's can only be PRIVATE", m.GetPropagation())
	case path.IsAbs(sub) || slices.Contains(strings.Split(sub, "/"), "..") || strings.Contains(sub, "\x00"):
		return "", invalid(name("image_sub_path"), "%q is not a path below the image's root", sub)
	case sub == "":
		return "", nil
	}
	if sub = path.Clean(sub); sub == "." {
		return "", nil
	}
	return sub, nil
}

// ImageVolumeFailed is an error about an image volume that a client knows by the word at its front.
func ImageVolumeFailed(v ImageVolume, err error) error {
	return inField(field("mounts", v.Mount, "image"), fmt.Errorf("%w: image %q: %w", crierrors.ErrImageVolumeMountFailed, v.Image, err))
}
