package container

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/container/build"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/images"
)

// Request is a request for a container, whose pod was ready when it was made.
type Request struct {
	Pod    state.Sandbox
	Config *runtime.ContainerConfig
}

// Request checks what can be checked of a request for a container without its image.
//
// # Errors
//
// ErrNotFound for an unknown sandbox, ErrFailedPrecondition if it is not ready, ErrInvalidArgument.
func (m *Manager) Request(sandboxID string, config *runtime.ContainerConfig) (Request, error) {
	pod, err := m.o.Sandboxes.Get(sandboxID)
	if err != nil {
		return Request{}, err
	}
	if pod.Phase != state.Ready {
		return Request{}, fmt.Errorf("create container: sandbox %q is not ready: %w", pod.Name(), errdefs.ErrFailedPrecondition)
	}
	if err := spec.CheckContainerName(config.GetMetadata().GetName()); err != nil {
		return Request{}, fmt.Errorf("create container: %w", err)
	}
	if config.GetImage().GetImage() == "" {
		return Request{}, fmt.Errorf("create container %q: image is empty: %w", config.GetMetadata().GetName(), errdefs.ErrInvalidArgument)
	}
	return Request{Pod: pod, Config: config}, nil
}

// Once runs create with the name of the container reserved. A request that repeats a running one
// joins it: requests of different kinds are never the same.
//
// # Errors
//
// ErrAlreadyExists with the id of the container of the same name; else those of create.
func (m *Manager) Once(ctx context.Context, r Request, kind string, create func(context.Context) (string, error)) (string, error) {
	same, err := proto.MarshalOptions{Deterministic: true}.Marshal(&runtime.CreateContainerRequest{PodSandboxId: r.Pod.ID, Config: r.Config})
	if err != nil {
		return "", fmt.Errorf("read container configuration: %w", err)
	}
	return m.names.Create(ctx, name(r.Config, r.Pod.Config.Value), fmt.Sprintf("%s %s", kind, same), func(ctx context.Context) (string, error) {
		id, err := create(ctx)
		if err != nil {
			return "", fmt.Errorf("create container %q: %w", r.Config.GetMetadata().GetName(), err)
		}
		return id, nil
	})
}

// intent is the record of a container before anything is made of it.
func (r Request) intent(sb *sandbox.Sandbox, img images.Image, created time.Time, leaf func(id string) string) state.Container {
	id := newID(sb, r.Config, img)
	return state.Container{
		ID: id, SandboxID: r.Pod.ID, Phase: state.Creating, CreatedAt: created,
		Config:    state.ContainerConfig{Value: r.Config},
		Resources: state.Resources{Value: r.Config.GetLinux().GetResources()},
		ImageID:   img.ID, ImageName: imageName(img, r.Config), ImageRef: build.ImageRef(img),
		ImagePlatform: platforms.FormatAll(img.Platform),
		StopSignal:    stopSignal(r.Config.GetStopSignal(), img.Config.StopSignal),
		LogPath:       logPath(r.Pod.Config.Value, r.Config),
		SnapshotKey:   id,
		CgroupsPath:   leaf(id),
	}
}

// pidNamespace finds the PID namespace that a container joins because it is another container's, ""
// without one.
func (r Request) pidNamespace(all *index) (string, error) {
	if _, _, pid := spec.Modes(r.Config, r.Pod.Config.Value); pid != runtime.NamespaceMode_TARGET {
		return "", nil
	}
	target := r.Config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetTargetId()
	if target == "" {
		return "", nil // spec.Container refuses that
	}
	rec, err := all.Get(target)
	if err != nil {
		return "", fmt.Errorf("target of the PID namespace: %w", err)
	}
	_, _, mode := spec.Modes(rec.Config.Value, r.Pod.Config.Value)
	switch {
	case rec.SandboxID != r.Pod.ID:
		return "", fmt.Errorf("target %q of the PID namespace is in another sandbox: %w", target, errdefs.ErrInvalidArgument)
	case mode != runtime.NamespaceMode_CONTAINER:
		return "", fmt.Errorf("target %q has no PID namespace of its own: %w", target, errdefs.ErrInvalidArgument)
	case spec.UserNamespace(r.Pod.Config.Value) != nil && strings.HasSuffix(rec.ImagePlatform, "/wasm"):
		return "", fmt.Errorf("target %q is a guest: its PID namespace is the machine's users', which the pod's cannot enter: %w", target, errdefs.ErrFailedPrecondition)
	case rec.Phase != state.Running:
		return "", fmt.Errorf("target %q of the PID namespace does not run: %w", target, errdefs.ErrFailedPrecondition)
	}
	return fmt.Sprintf("/proc/%d/ns/pid", rec.PID), nil
}

// newID is the id of a new container. One with a guest gets the id that was drawn ahead of it,
// unless it has a terminal, which a prewarmed process cannot get.
func newID(sb *sandbox.Sandbox, config *runtime.ContainerConfig, img images.Image) string {
	if config.GetTty() || !build.IsWasm(img) && img.Program == "" {
		return state.NewID()
	}
	return sb.TakeID(config)
}

// imageName is a name by which people know the image.
func imageName(img images.Image, config *runtime.ContainerConfig) string {
	wanted := config.GetImage().GetUserSpecifiedImage()
	switch {
	case wanted != "" && (len(img.RepoTags) == 0 || slices.Contains(img.RepoTags, wanted)):
		return wanted
	case len(img.RepoTags) > 0:
		return img.RepoTags[0]
	case len(img.RepoDigests) > 0:
		return img.RepoDigests[0]
	}
	return config.GetImage().GetImage()
}

// logPath is the container's log file, "" if it has none.
func logPath(pod *runtime.PodSandboxConfig, config *runtime.ContainerConfig) string {
	if pod.GetLogDirectory() == "" || config.GetLogPath() == "" {
		return ""
	}
	return filepath.Join(pod.GetLogDirectory(), config.GetLogPath())
}
