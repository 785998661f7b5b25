package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/images"
)

// Create makes a container in a sandbox and returns its id. Its process does not exist yet.
//
// The image is the variant for the sandbox's handler, which is fetched if only another one is
// present. A request that repeats a running one (the client gave up and retries) joins it. An image
// that is the absolute path of a checkpoint's archive, or was made from one, makes a container that
// starts from that checkpoint: Start resumes its processes, and the configuration's program is
// ignored. Its base image is fetched, with the node's own credentials, if it is missing.
//
// # Errors
//
// ErrNotFound for an unknown sandbox or image, ErrFailedPrecondition if the sandbox is not ready,
// ErrInvalidArgument for an invalid configuration, ErrAlreadyExists with the id of the container of
// the same name. On error the container is removed.
func (s *Service) Create(ctx context.Context, sandboxID string, config *runtime.ContainerConfig) (string, error) {
	return s.create(ctx, sandboxID, config, archiveOf(config), false)
}

// Restore is Create for a container that starts from the archive of a checkpoint. Its image,
// command, arguments, working directory, environment and user must be those of the checkpoint.
//
// # Errors
//
// Also ErrInvalidArgument if they are not, or there is no such archive; ErrFailedPrecondition if
// CRIU does not work here.
func (s *Service) Restore(ctx context.Context, sandboxID string, config *runtime.ContainerConfig, archive string) (string, error) {
	return s.create(ctx, sandboxID, config, archive, true)
}

// create is Create from an archive, if that is not "".
func (s *Service) create(ctx context.Context, sandboxID string, config *runtime.ContainerConfig, archive string, strict bool) (string, error) {
	r, err := s.o.Containers.Request(sandboxID, config)
	if err != nil {
		return "", err
	}
	return s.o.Containers.Once(ctx, r, fmt.Sprintf("%q %t", archive, strict), func(ctx context.Context) (string, error) {
		img, o, err := s.chooseImage(ctx, r, archive, strict)
		if err != nil {
			return "", err
		}
		if o == nil {
			return s.o.Containers.Create(ctx, r, img)
		}
		defer func() {
			if err := o.close(); err != nil {
				s.o.Logger.Error("failed to remove what was unpacked of a checkpoint", "error", err)
			}
		}()
		return s.createFrom(ctx, r, img, o)
	})
}

// chooseImage finds the image of a new container. If it starts from a checkpoint, that is the
// checkpoint's.
func (s *Service) chooseImage(ctx context.Context, r container.Request, archive string, strict bool) (img images.Image, o *origin, err error) {
	wanted := r.Config.GetImage()
	if archive != "" {
		o, err = s.openArchive(ctx, r.Pod, archive, strict)
	} else {
		img, err = s.o.Images.ForContainer(ctx, wanted.GetImage(), wanted.GetUserSpecifiedImage(), r.Pod.HandlerName)
		if err != nil || img.Checkpoint == "" {
			return img, nil, err
		}
		o, err = s.openImage(ctx, r.Pod, img)
	}
	if err != nil {
		return img, nil, err
	}
	if img, err = s.originImage(ctx, r.Pod, o, r.Config); err != nil {
		return img, nil, errors.Join(err, o.close())
	}
	return img, o, nil
}

// createFrom makes a container that has the state of a checkpoint: its root filesystem's changes
// and the state of its processes, which Start takes up.
func (s *Service) createFrom(ctx context.Context, r container.Request, img images.Image, o *origin) (string, error) {
	d, err := s.o.Containers.Draft(ctx, r, img)
	if err != nil {
		return "", err
	}
	if err := s.fill(ctx, d, o); err != nil {
		d.Discard(ctx)
		return "", err
	}
	return d.Commit(ctx)
}

func (s *Service) fill(ctx context.Context, d *container.Draft, o *origin) error {
	now, err := d.Spec()
	if err != nil {
		return err
	}
	var then saved
	if err := ReadJSON(filepath.Join(o.dir, SpecFile), &then); err != nil {
		return err
	}
	if err := fits(then, now, o.strict); err != nil {
		return err
	}
	err = d.ChangeRoot(ctx, func(root string) error { return ApplyRoot(ctx, o.dir, root, s.o.Limit) })
	if err != nil {
		return err
	}
	return d.TakeState(filepath.Join(o.dir, StateDir))
}

// archiveOf is the archive that an image reference names, "" if it names an image. References never
// start with a slash.
func archiveOf(config *runtime.ContainerConfig) string {
	if image := config.GetImage().GetImage(); filepath.IsAbs(image) {
		return image
	}
	return ""
}
