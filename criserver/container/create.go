package container

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"google.golang.org/protobuf/proto"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/images"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// Create makes a container in a sandbox and returns its id. Its process does not exist yet.
//
// The image is the variant that the sandbox's handler wants; if only another one is there it is fetched now. A request
// that repeats a running one (the client gave up and asks again) joins it.
//
// # Errors
//
// ErrNotFound for an unknown sandbox or image, ErrFailedPrecondition if the sandbox is not ready, ErrInvalidArgument for
// a configuration that cannot be, ErrAlreadyExists with the id of the container of the same name. On error nothing
// is left.
//
// An image that is the absolute path of a checkpoint's archive, or was made of one, makes a container that begins from
// there: Start takes up its processes where they were, and what the configuration says of the program counts for
// nothing. The image that it stood on is fetched, with the node's own credentials, if it is missing.
func (m *Manager) Create(ctx context.Context, sandboxID string, config *runtime.ContainerConfig) (string, error) {
	return m.createFrom(ctx, sandboxID, config, archiveOf(config), false)
}

// createFrom is Create from an archive, if that is not "".
func (m *Manager) createFrom(ctx context.Context, sandboxID string, config *runtime.ContainerConfig, archive string, strict bool) (string, error) {
	pod, err := m.o.Sandboxes.Get(sandboxID)
	if err != nil {
		return "", err
	}
	if pod.Phase != state.Ready {
		return "", fmt.Errorf("create container: sandbox %q is not ready: %w", pod.ID, errdefs.ErrFailedPrecondition)
	}
	if err := spec.CheckContainerName(config.GetMetadata().GetName()); err != nil {
		return "", fmt.Errorf("create container: %w", err)
	}
	if config.GetImage().GetImage() == "" {
		return "", fmt.Errorf("create container %q: image is empty: %w", config.GetMetadata().GetName(), errdefs.ErrInvalidArgument)
	}
	same, err := proto.MarshalOptions{Deterministic: true}.Marshal(&runtime.CreateContainerRequest{PodSandboxId: pod.ID, Config: config})
	if err != nil {
		return "", fmt.Errorf("read container configuration: %w", err)
	}
	request := fmt.Sprintf("%q %t %s", archive, strict, same)
	return m.names.Create(ctx, name(config, pod.Config.Value), request, func(ctx context.Context) (string, error) {
		id, err := m.makeFrom(ctx, pod, config, archive, strict)
		if err != nil {
			return "", fmt.Errorf("create container %q: %w", config.GetMetadata().GetName(), err)
		}
		return id, nil
	})
}

// makeFrom lays out the checkpoint that a container is made from, if there is one.
func (m *Manager) makeFrom(ctx context.Context, pod state.Sandbox, config *runtime.ContainerConfig, archive string, strict bool) (string, error) {
	img, o, err := m.chooseImage(ctx, pod, config, archive, strict)
	if err != nil {
		return "", err
	}
	defer func() {
		if err := o.close(); err != nil {
			m.o.Logger.Error("remove what was unpacked of a checkpoint", "error", err)
		}
	}()
	return m.create(ctx, pod, config, img, o)
}

// chooseImage finds the image of a new container. If it begins from a checkpoint, that is the checkpoint's.
func (m *Manager) chooseImage(
	ctx context.Context, pod state.Sandbox, config *runtime.ContainerConfig, archive string, strict bool,
) (img images.Image, o *origin, err error) {
	wanted := config.GetImage()
	if archive != "" {
		o, err = m.openArchive(ctx, pod, archive, strict)
	} else {
		img, err = m.o.Images.ForContainer(ctx, wanted.GetImage(), wanted.GetUserSpecifiedImage(), pod.HandlerName)
		if err != nil || img.Checkpoint == "" {
			return img, nil, err
		}
		o, err = m.openImage(ctx, pod, img)
	}
	if err != nil {
		return img, nil, err
	}
	if img, err = m.originImage(ctx, pod, o, config); err != nil {
		return img, nil, errors.Join(err, o.close())
	}
	return img, o, nil
}

func (m *Manager) create(ctx context.Context, pod state.Sandbox, config *runtime.ContainerConfig, img images.Image, o *origin) (string, error) {
	if err := m.o.Images.Permit(img, pod.Config.Value.GetMetadata().GetNamespace()); err != nil {
		return "", err
	}
	if err := m.checkHandler(pod, img); err != nil {
		return "", err
	}
	sb, err := m.o.Sandboxes.Sandbox(pod.ID)
	if err != nil {
		return "", err
	}
	_, release, err := sb.Use()
	if err != nil {
		return "", err
	}
	defer release()
	if isWasm(img) {
		sb.Prepare(ctx)
		m.ready(ctx, img)
	}

	id, err := newID(sb, config, img)
	if err != nil {
		return "", err
	}
	rec := state.Container{
		ID: id, SandboxID: pod.ID, Phase: state.Creating, CreatedAt: time.Now(),
		Config:    state.ContainerConfig{Value: config},
		Resources: state.Resources{Value: config.GetLinux().GetResources()},
		ImageID:   img.ID, ImageName: imageName(img, config), ImageRef: imageRef(img),
		ImagePlatform: platforms.FormatAll(img.Platform),
		StopSignal:    stopSignal(config.GetStopSignal(), img.Config.StopSignal),
		LogPath:       logPath(pod.Config.Value, config),
		SnapshotKey:   id,
		CgroupsPath:   m.o.Sandboxes.Leaf(pod, id),
	}
	if err := m.records.Create(id, rec); err != nil {
		return "", fmt.Errorf("record intent: %w", err)
	}
	c := newContainer(m, id, pod.ID)
	m.add(c)
	b := &builder{manager: m, sandbox: sb, pod: pod, image: img, rec: rec}
	err = b.build(ctx)
	if err == nil && o != nil {
		err = b.restored(ctx, o)
	}
	if err == nil {
		_, err = c.move(state.Created, func(r *state.Container) {
			r.User, r.RootFS, r.ImageVolumes, r.ProcessLabel = b.rec.User, b.rec.RootFS, b.rec.ImageVolumes, b.rec.ProcessLabel
			r.FromCheckpoint = b.rec.FromCheckpoint
			r.Unstartable = b.rec.Unstartable
		})
	}
	if err != nil {
		ctx, cancel := sandbox.Aside(ctx)
		defer cancel()
		if uerr := m.forget(ctx, c, b.rec); uerr != nil {
			m.o.Logger.Error("undo container", "container", id, "error", uerr)
		}
		return "", err
	}
	m.o.Logger.Info("container is created", "container", id, "name", config.GetMetadata().GetName(), "sandbox", pod.ID, "image", rec.ImageName)
	return id, nil
}

// newID is the id of a new container. One with a guest gets the id that was drawn ahead of it, unless it has a terminal, which a
// prewarmed process cannot get.
func newID(sb *sandbox.Sandbox, config *runtime.ContainerConfig, img images.Image) (string, error) {
	if config.GetTty() || !isWasm(img) && img.Program == "" {
		return state.NewID()
	}
	return sb.TakeID(config)
}

// checkHandler refuses a WebAssembly image in a pod that has no engine for it.
func (m *Manager) checkHandler(pod state.Sandbox, img images.Image) error {
	if runtimeclass.Type(pod.HandlerType) == runtimeclass.WASM || !isWasm(img) {
		return nil
	}
	return m.wrongHandler(pod)
}

func (m *Manager) wrongHandler(pod state.Sandbox) error {
	var names []string
	for _, h := range m.o.Handlers.All() {
		if h.Type == runtimeclass.WASM {
			names = append(names, h.Name)
		}
	}
	advice := "no handler of type wasm is configured"
	if len(names) > 0 {
		advice = "use a RuntimeClass with handler " + strings.Join(names, " or ")
	}
	return fmt.Errorf("the image is WebAssembly, which handler %q does not run (%s): %w", pod.HandlerName, advice, errdefs.ErrInvalidArgument)
}

func isWasm(img images.Image) bool {
	return img.Kind == images.Module || strings.HasPrefix(img.Platform.Architecture, "wasm")
}

// ready has the image's module compiled and read, if this server has not done that yet: what the pod's own processes would
// compile and read first would count to the pod. One among an image's files is readyProgram's.
func (m *Manager) ready(ctx context.Context, img images.Image) {
	if m.o.Modules != nil && img.Kind == images.Module {
		m.o.Modules.Ready(ctx, m.o.Images.ModulePath(img), img.Module.Digest.String())
	}
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

func imageRef(img images.Image) string {
	if len(img.RepoDigests) > 0 {
		return img.RepoDigests[0]
	}
	return img.ID
}

// logPath is the container's log file, "" if it has none.
func logPath(pod *runtime.PodSandboxConfig, config *runtime.ContainerConfig) string {
	if pod.GetLogDirectory() == "" || config.GetLogPath() == "" {
		return ""
	}
	return filepath.Join(pod.GetLogDirectory(), config.GetLogPath())
}

// forget removes everything of a container that does not run: its bundle first, its record last. From that order a server
// that starts knows what the one before it had begun to remove.
func (m *Manager) forget(ctx context.Context, c *Container, rec state.Container) error {
	m.vacateUnstarted(ctx, rec)
	var errs []error
	if sb, err := m.o.Sandboxes.Sandbox(rec.SandboxID); err == nil {
		errs = append(errs, sb.RemoveBundle(rec.ID))
	}
	for _, key := range rec.Keys() {
		err := m.o.Images.RemoveRootFS(ctx, key)
		if durable.Full(err) { // its record goes with the next start, as an orphan's; what it held is gone
			m.o.Logger.Warn("remove root filesystem", "container", rec.ID, "key", key, "error", err)
			continue
		}
		if err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove root filesystem %q: %w", key, err))
		}
	}
	errs = append(errs, space.Remove(m.volumesDir(rec.ID)))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := m.records.Delete(rec.ID); err != nil {
		return err
	}
	m.o.Labels.Release(rec.ProcessLabel)
	m.drop(c.ID)
	return nil
}

func (m *Manager) volumesDir(id string) string { return filepath.Join(m.o.Volumes, id) }
