package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/checkpoint"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// origin is the checkpoint that a container begins from, laid out in a folder.
type origin struct {
	dir    string
	config checkpoint.Config
	strict bool // the container's configuration describes the checkpointed process
}

// Restore is Create for a container that begins from the archive of a checkpoint. Its image, command, arguments, working
// directory, environment and user must be those of the checkpoint.
//
// # Errors
//
// Also ErrInvalidArgument if they are not, or there is no such archive; ErrFailedPrecondition if CRIU does not work here.
func (m *Manager) Restore(ctx context.Context, sandboxID string, config *runtime.ContainerConfig, archive string) (string, error) {
	return m.createFrom(ctx, sandboxID, config, archive, true)
}

// archiveOf is the archive that an image reference names, "" if it names an image. References never begin with a slash.
func archiveOf(config *runtime.ContainerConfig) string {
	if image := config.GetImage().GetImage(); filepath.IsAbs(image) {
		return image
	}
	return ""
}

// openArchive lays out an archive in a folder of its own.
func (m *Manager) openArchive(ctx context.Context, pod state.Sandbox, archive string, strict bool) (*origin, error) {
	return m.open(ctx, pod, archive, strict, func(dir string) error {
		if err := m.paths.Regular(ctx, archive); err != nil {
			return fmt.Errorf("image %q is not the archive of a checkpoint: %w", archive, err)
		}
		return checkpoint.Unpack(ctx, archive, dir, m.o.CheckpointLimit)
	})
}

// openImage does the same with an image that was made of an archive.
func (m *Manager) openImage(ctx context.Context, pod state.Sandbox, img images.Image) (*origin, error) {
	if err := m.o.Images.Permit(img, pod.Config.Value.GetMetadata().GetNamespace()); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("checkpoint of container %q", img.Checkpoint)
	if !m.o.RestoreImages {
		return nil, fmt.Errorf("restore %q: the image's annotation says that it is one, and this server makes no containers of such images (images.restore_checkpoints): %w",
			what, errdefs.ErrFailedPrecondition)
	}
	return m.open(ctx, pod, what, false, func(dir string) (err error) {
		key := checkpointKey + filepath.Base(dir)
		if _, err := m.o.Images.PrepareView(ctx, key, img, "", ""); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.o.Images.RemoveRootFS(context.WithoutCancel(ctx), key)) }()
		return m.o.Images.WithRootFS(ctx, key, func(root string) error { return checkpoint.Copy(ctx, root, dir, m.o.CheckpointLimit) })
	})
}

// checkpointKey begins the image store's keys of images that are read as checkpoints.
const checkpointKey = "checkpoint-"

// open lays out a checkpoint in a folder of its own.
func (m *Manager) open(ctx context.Context, pod state.Sandbox, what string, strict bool, layOut func(dir string) error) (_ *origin, err error) {
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
	if err := checkpoint.Ready(ctx); err != nil {
		return nil, err
	}
	o := &origin{strict: strict}
	if o.dir, err = os.MkdirTemp(m.o.Checkpoints, ""); err != nil {
		return nil, fmt.Errorf("make work folder: %w", err)
	}
	if err = layOut(o.dir); err == nil {
		err = checkpoint.ReadJSON(filepath.Join(o.dir, checkpoint.ConfigFile), &o.config)
	}
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	return o, nil
}

// mapless refuses pods with a user namespace: their files belong to users of the node that the next pod does not have.
func mapless(pod state.Sandbox) error {
	if spec.UserNamespace(pod.Config.Value) == nil {
		return nil
	}
	return fmt.Errorf("sandbox %q has a user namespace, and checkpoints are for pods of the node's users (hostUsers: true): %w",
		pod.ID, errdefs.ErrFailedPrecondition)
}

func (o *origin) close() error {
	if o == nil {
		return nil
	}
	return os.RemoveAll(o.dir)
}

// originImage finds the image on which the checkpointed container stood, and fetches it if it is missing: who asks for the
// container may not know of it.
func (m *Manager) originImage(ctx context.Context, pod state.Sandbox, o *origin, config *runtime.ContainerConfig) (images.Image, error) {
	names := slices.DeleteFunc([]string{o.config.RootfsImageRef, o.config.RootfsImageName, o.config.RootfsImage}, func(s string) bool { return s == "" })
	var errs []error
	for _, name := range names {
		img, err := m.o.Images.ForContainer(ctx, name, "", pod.HandlerName)
		if err == nil {
			return img, m.sameImage(ctx, o, config, img, pod.HandlerName)
		}
		errs = append(errs, err)
	}
	if o.strict { // the request's own image has to be it
		return images.Image{}, fmt.Errorf("find the image of the checkpoint (pull %q): %w", o.config.RootfsImageName, errors.Join(errs...))
	}
	for _, name := range names {
		img, err := m.o.Images.Pull(ctx, images.PullRequest{Ref: name, Handler: pod.HandlerName, Namespace: pod.Config.Value.GetMetadata().GetNamespace()})
		if err == nil {
			return img, nil
		}
		errs = append(errs, err)
	}
	return images.Image{}, fmt.Errorf("fetch the image of the checkpoint without its credentials (pull %q with them): %w", o.config.RootfsImageName, errors.Join(errs...))
}

// sameImage refuses a configuration that names another image than the checkpoint's.
func (m *Manager) sameImage(ctx context.Context, o *origin, config *runtime.ContainerConfig, img images.Image, handler string) error {
	if !o.strict {
		return nil
	}
	wanted := config.GetImage()
	asked, err := m.o.Images.ForContainer(ctx, wanted.GetImage(), wanted.GetUserSpecifiedImage(), handler)
	if err != nil {
		return err
	}
	if asked.ID != img.ID {
		return fmt.Errorf("image %q is not that of the checkpoint, %q: %w", wanted.GetImage(), o.config.RootfsImageName, errdefs.ErrInvalidArgument)
	}
	return nil
}

// restored gives a container that was built the state of its checkpoint: its root filesystem's changes and the state of
// its processes, which Start takes up.
func (b *builder) restored(ctx context.Context, o *origin) error {
	now, err := b.manager.Spec(b.rec)
	if err != nil {
		return err
	}
	var then saved
	if err := checkpoint.ReadJSON(filepath.Join(o.dir, checkpoint.SpecFile), &then); err != nil {
		return err
	}
	if err := fits(then, now, o.strict); err != nil {
		return err
	}
	err = b.manager.o.Images.ChangeRootFS(ctx, b.rec.SnapshotKey, func(root string) error { return checkpoint.ApplyRoot(ctx, o.dir, root, b.manager.o.CheckpointLimit) })
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.manager.volumesDir(b.rec.ID), 0o755); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(o.dir, checkpoint.StateDir), b.manager.stateDir(b.rec.ID)); err != nil {
		return err
	}
	b.rec.FromCheckpoint, b.rec.Unstartable = true, "" // nothing is executed
	return nil
}

// stateDir is where a container that begins from a checkpoint keeps the state of its processes until it was started.
func (m *Manager) stateDir(id string) string {
	return filepath.Join(m.volumesDir(id), checkpoint.StateDir)
}

// saved is what must be known of the specification of a checkpointed container.
type saved struct {
	Process *struct {
		Terminal bool       `json:"terminal"`
		Args     []string   `json:"args"`
		Cwd      string     `json:"cwd"`
		Env      []string   `json:"env"`
		User     specs.User `json:"user"`
	} `json:"process"`
	Mounts []struct {
		Destination string `json:"destination"`
	} `json:"mounts"`
}

// fits says whether a specification can take up the processes of another one: what they had mounted must be there, and,
// if strict, the program must be the same.
func fits(was saved, now []byte, strict bool) error {
	var is specs.Spec
	if err := json.Unmarshal(now, &is); err != nil {
		return err
	}
	have := map[string]bool{}
	for _, m := range is.Mounts {
		have[m.Destination] = true
	}
	for _, m := range was.Mounts {
		if !have[m.Destination] {
			return fmt.Errorf("the checkpoint has a mount at %q and the container has none: %w", m.Destination, errdefs.ErrInvalidArgument)
		}
	}
	if was.Process == nil || is.Process == nil {
		return fmt.Errorf("%s of the checkpoint has no process: %w", checkpoint.SpecFile, errdefs.ErrInvalidArgument)
	}
	if was.Process.Terminal != is.Process.Terminal {
		return fmt.Errorf("tty is %t and in the checkpoint %t: %w", is.Process.Terminal, was.Process.Terminal, errdefs.ErrInvalidArgument)
	}
	if !strict {
		return nil
	}
	for _, part := range []struct {
		name     string
		was, now any
	}{
		{"command", was.Process.Args, is.Process.Args},
		{"working directory", was.Process.Cwd, is.Process.Cwd},
		{"environment", was.Process.Env, is.Process.Env},
		{"user", was.Process.User, is.Process.User},
	} {
		if !reflect.DeepEqual(part.was, part.now) {
			return fmt.Errorf("%s is %v and in the checkpoint %v: %w", part.name, part.now, part.was, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}
