package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/durable"
)

// ImagesName is the file that names the images which a container mounts, beside its OCI
// configuration, and ImagesDir the folder below which the shim shows them.
const (
	ImagesName = "images.json"
	ImagesDir  = "images"
)

// Image is an image whose files a container mounts. It is shown, read-only, in a folder of its name
// below ImagesDir.
type Image struct {
	Name   string  `json:"name"`
	Mounts []Mount `json:"mounts"`
}

// WriteImages names the images of a bundle; without any it removes the file.
func WriteImages(dir string, images []Image) error {
	if len(images) == 0 {
		return durable.Remove(dir, ImagesName)
	}
	return replaceJSON(dir, ImagesName, images)
}

// MountImages shows the images of a bundle, with the owners that they have in a user namespace if
// userns is the path of one. On error nothing stays mounted.
func MountImages(dir, userns string) error {
	var images []Image
	err := readJSON(filepath.Join(dir, ImagesName), &images)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, image := range images {
		if err := mountImage(dir, image, userns); err != nil {
			return errors.Join(fmt.Errorf("mount image volume %q: %w", image.Name, err), UnmountImages(dir))
		}
	}
	return nil
}

func mountImage(dir string, image Image, userns string) error {
	if image.Name == "" || strings.ContainsAny(image.Name, "/\x00") || image.Name == "." || image.Name == ".." {
		return fmt.Errorf("name is not that of a folder: %w", errdefs.ErrInvalidArgument)
	}
	target := filepath.Join(dir, ImagesDir, image.Name)
	if err := mountPoint(target, true); err != nil {
		return err
	}
	for _, m := range image.Mounts {
		options, mapped := takeMapping(m.Options)
		m.Options = options
		var err error
		switch {
		case mapped && m.Type == "bind": // an image of one layer
			err = mountMappedLayer(m, target, userns)
		case mapped:
			err = mountMapped(m, dir, target, userns)
		default:
			err = mount(m, target)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mountMappedLayer binds a folder, which is its image's only layer, with mapped owners at a place
// that is there.
func mountMappedLayer(m Mount, target, userns string) error {
	if userns == "" {
		return fmt.Errorf("mount with mapped owners: the container joins no user namespace: %w", errdefs.ErrNotImplemented)
	}
	if err := os.Remove(target); err != nil { // it is made as the mount needs it
		return err
	}
	if err := mapOwners(m.Source, target, userns, false); err != nil {
		return err
	}
	if !slices.Contains(m.Options, "ro") {
		return nil
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, target, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make %q read-only: %w", target, err)
	}
	return nil
}

// UnmountImages unmounts what MountImages mounted. It is idempotent.
func UnmountImages(dir string) error { return unmountBelow(filepath.Join(dir, ImagesDir)) }
