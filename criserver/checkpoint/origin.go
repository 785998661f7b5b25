package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// origin is the checkpoint that a container starts from, laid out in a folder.
type origin struct {
	dir    string
	config Config
	strict bool // the container's configuration describes the checkpointed process
}

// openArchive lays out an archive in a folder of its own.
func (s *Service) openArchive(ctx context.Context, pod state.Sandbox, archive string, strict bool) (*origin, error) {
	return s.open(ctx, pod, archive, strict, func(dir string) error {
		if err := s.paths.Regular(ctx, archive); err != nil {
			return fmt.Errorf("image %q is not the archive of a checkpoint: %w", archive, err)
		}
		return Unpack(ctx, archive, dir, s.o.Limit)
	})
}

// openImage does the same with an image that was made of an archive.
func (s *Service) openImage(ctx context.Context, pod state.Sandbox, img images.Image) (*origin, error) {
	if err := s.o.Images.Permit(img, pod.Config.Value.GetMetadata().GetNamespace()); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("checkpoint of container %q", img.Checkpoint)
	if !s.o.RestoreImages {
		return nil, fmt.Errorf("restore %q: the image's annotation says that it is one, and this server makes no containers of such images (images.restore_checkpoints): %w",
			what, errdefs.ErrFailedPrecondition)
	}
	return s.open(ctx, pod, what, false, func(dir string) (err error) {
		key := checkpointKey + filepath.Base(dir)
		if _, err := s.o.Images.PrepareView(ctx, key, img, "", ""); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.o.Images.RemoveRootFS(context.WithoutCancel(ctx), key)) }()
		return s.o.Images.WithRootFS(ctx, key, func(root string) error { return Copy(ctx, root, dir, s.o.Limit) })
	})
}

// checkpointKey is the prefix of the image store's keys of images that are read as checkpoints.
const checkpointKey = "checkpoint-"

// open lays out a checkpoint in a folder of its own.
func (s *Service) open(ctx context.Context, pod state.Sandbox, what string, strict bool, layOut func(dir string) error) (_ *origin, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("restore %q: %w", what, err)
		}
	}()
	if runtimeclass.Type(pod.HandlerType) != runtimeclass.OCI {
		return nil, fmt.Errorf("handler %q runs WebAssembly guests, whose engine cannot resume a saved module: %w",
			pod.HandlerName, errdefs.ErrFailedPrecondition)
	}
	if err := mapless(pod); err != nil {
		return nil, err
	}
	if err := Ready(ctx); err != nil {
		return nil, err
	}
	o := &origin{strict: strict}
	if o.dir, err = os.MkdirTemp(s.o.Dir, ""); err != nil {
		return nil, fmt.Errorf("make work folder: %w", err)
	}
	if err = layOut(o.dir); err == nil {
		err = ReadJSON(filepath.Join(o.dir, ConfigFile), &o.config)
	}
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	return o, nil
}

// mapless refuses pods with a user namespace: their files belong to users of the node that the next
// pod does not have.
func mapless(pod state.Sandbox) error {
	if spec.UserNamespace(pod.Config.Value) == nil {
		return nil
	}
	return fmt.Errorf("sandbox %q has a user namespace, and checkpoints are for pods of the node's users (hostUsers: true): %w",
		pod.Name(), errdefs.ErrFailedPrecondition)
}

func (o *origin) close() error {
	if o == nil {
		return nil
	}
	return remove(o.dir)
}

// originImage finds the image on which the checkpointed container stood, and fetches it if it is
// missing: who asks for the container may not know of it.
func (s *Service) originImage(ctx context.Context, pod state.Sandbox, o *origin, config *runtime.ContainerConfig) (images.Image, error) {
	names := slices.DeleteFunc([]string{o.config.RootfsImageRef, o.config.RootfsImageName, o.config.RootfsImage}, func(s string) bool { return s == "" })
	var errs []error
	for _, name := range names {
		img, err := s.o.Images.ForContainer(ctx, name, "", pod.HandlerName)
		if err == nil {
			return img, s.sameImage(ctx, o, config, img, pod.HandlerName)
		}
		errs = append(errs, err)
	}
	if o.strict { // the request's own image has to be it
		return images.Image{}, fmt.Errorf("find the image of the checkpoint (pull %q): %w", o.config.RootfsImageName, errors.Join(errs...))
	}
	for _, name := range names {
		img, err := s.o.Images.Pull(ctx, images.PullRequest{Ref: name, Handler: pod.HandlerName, Namespace: pod.Config.Value.GetMetadata().GetNamespace()})
		if err == nil {
			return img, nil
		}
		errs = append(errs, err)
	}
	return images.Image{}, fmt.Errorf("fetch the image of the checkpoint without its credentials (pull %q with them): %w", o.config.RootfsImageName, errors.Join(errs...))
}

// sameImage refuses a configuration that names another image than the checkpoint's.
func (s *Service) sameImage(ctx context.Context, o *origin, config *runtime.ContainerConfig, img images.Image, handler string) error {
	if !o.strict {
		return nil
	}
	wanted := config.GetImage()
	asked, err := s.o.Images.ForContainer(ctx, wanted.GetImage(), wanted.GetUserSpecifiedImage(), handler)
	if err != nil {
		return err
	}
	if asked.ID != img.ID {
		return fmt.Errorf("image %q is not that of the checkpoint, %q: %w", wanted.GetImage(), o.config.RootfsImageName, errdefs.ErrInvalidArgument)
	}
	return nil
}
