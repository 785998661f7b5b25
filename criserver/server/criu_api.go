package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protojson"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/checkpoint"
	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/host/space"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// criuAPI answers the requests for checkpoints. Each request is checked whole before CRIU is asked
// whether it can work here, so that an answer says first what is wrong with the request.
type criuAPI struct {
	sandboxes   *sandbox.Manager
	containers  *container.Manager
	checkpoints *checkpoint.Service
	handlers    *runtimeclass.Table
}

// checkpointTime is how long a checkpoint may take when the client does not say.
const checkpointTime = 2 * time.Minute

func (a *criuAPI) CheckpointContainer(ctx context.Context, r *runtime.CheckpointContainerRequest) (*runtime.CheckpointContainerResponse, error) {
	rec, err := a.containers.Get(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(seconds(r.GetTimeout()), checkpointTime)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := a.checkContainer(ctx, rec, r); err != nil {
		return nil, fmt.Errorf("checkpoint container %q: %w", rec.Name(), err)
	}
	err = a.checkpoints.Capture(ctx, []string{rec.ID}, func(ctx context.Context, captured []checkpoint.Captured) error {
		return pack(ctx, captured[0], r.GetLocation())
	})
	if err != nil {
		return nil, err
	}
	return &runtime.CheckpointContainerResponse{}, nil
}

func (a *criuAPI) checkContainer(ctx context.Context, rec state.Container, r *runtime.CheckpointContainerRequest) error {
	pod, err := a.sandboxes.Get(rec.SandboxID)
	switch {
	case err != nil:
		return err
	case rec.Phase != state.Running:
		return fmt.Errorf("it is %s, and only a running one has a state to keep: %w", rec.Phase, errdefs.ErrFailedPrecondition)
	case !filepath.IsAbs(r.GetLocation()):
		return fmt.Errorf("location %q is not absolute: %w", r.GetLocation(), errdefs.ErrInvalidArgument)
	case r.GetTimeout() < 0:
		return fmt.Errorf("timeout %d is negative: %w", r.GetTimeout(), errdefs.ErrInvalidArgument)
	}
	return missing(ctx, runtimeclass.Type(pod.HandlerType), pod.HandlerName)
}

// pack completes what was captured of a container and makes its archive.
func pack(ctx context.Context, c checkpoint.Captured, location string) error {
	status, err := protojson.Marshal(containerStatus(c.Record))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.Dir, checkpoint.StatusFile), status, 0o600); err != nil {
		return err
	}
	return checkpoint.Pack(ctx, c.Dir, location)
}

func (a *criuAPI) CheckpointPod(ctx context.Context, r *runtime.CheckpointPodRequest) (*runtime.CheckpointPodResponse, error) {
	rec, err := a.sandboxes.Get(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if err := a.checkpointPod(ctx, rec, r); err != nil {
		return nil, fmt.Errorf("checkpoint pod %q: %w", rec.Name(), err)
	}
	return &runtime.CheckpointPodResponse{}, nil
}

func (a *criuAPI) checkpointPod(ctx context.Context, rec state.Sandbox, r *runtime.CheckpointPodRequest) error {
	if _, ok := ctx.Deadline(); !ok {
		return fmt.Errorf("the request has no deadline: %w", errdefs.ErrInvalidArgument)
	}
	if err := noOptions(r.GetOptions()); err != nil {
		return err
	}
	if rec.Phase != state.Ready {
		return fmt.Errorf("it is not ready: %w", errdefs.ErrFailedPrecondition)
	}
	if err := emptyFolder(r.GetOutputPath()); err != nil {
		return err
	}
	ids := slices.Clone(r.GetContainerIds())
	slices.Sort(ids)
	if running := a.containers.RunningIn(rec.ID); len(ids) == 0 || !slices.Equal(ids, running) {
		return fmt.Errorf("container_ids are %q, but %q run: %w", ids, running, errdefs.ErrInvalidArgument)
	}
	if err := missing(ctx, runtimeclass.Type(rec.HandlerType), rec.HandlerName); err != nil {
		return err
	}
	return a.checkpoints.Capture(ctx, ids, func(ctx context.Context, captured []checkpoint.Captured) error {
		if running := a.containers.RunningIn(rec.ID); !slices.Equal(ids, running) {
			return fmt.Errorf("containers started or exited meanwhile, and %q run: %w", running, errdefs.ErrFailedPrecondition)
		}
		err := packPod(ctx, captured, r.GetOutputPath())
		if err != nil {
			err = errors.Join(err, space.Empty(r.GetOutputPath()))
		}
		return err
	})
}

// packPod writes a pod's checkpoint into an empty folder. What says that it is one comes last.
func packPod(ctx context.Context, captured []checkpoint.Captured, dir string) error {
	options := checkpoint.PodOptions{Version: 1, Containers: map[string]string{}}
	for _, c := range captured {
		name := c.Record.Config.Value.GetMetadata().GetName()
		if _, ok := options.Containers[name]; ok {
			return fmt.Errorf("two containers are called %q: %w", name, errdefs.ErrFailedPrecondition)
		}
		options.Containers[name] = c.Record.ID
		if err := pack(ctx, c, filepath.Join(dir, c.Record.ID+archiveSuffix)); err != nil {
			return err
		}
	}
	file := filepath.Join(dir, checkpoint.PodOptionsFile)
	if err := checkpoint.WriteJSON(file, options); err != nil {
		return err
	}
	return errors.Join(durable.Sync(file), durable.Sync(dir))
}

const archiveSuffix = ".tar"

func (a *criuAPI) RestorePod(ctx context.Context, r *runtime.RestorePodRequest) (*runtime.RestorePodResponse, error) {
	archives, err := a.checkRestore(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("restore pod from %q: %w", r.GetCheckpointPath(), err)
	}
	id, err := a.sandboxes.Restore(ctx, r, func(ctx context.Context, id string) error {
		return a.restoreAll(ctx, id, r.GetContainerConfigs(), archives)
	}, a.containers.StopAll, a.containers.RemoveAll)
	if err != nil {
		return nil, fmt.Errorf("restore pod from %q: %w", r.GetCheckpointPath(), err)
	}
	// A request that has joined another one made nothing itself.
	made := map[string]string{}
	for _, c := range a.containers.In(id) {
		made[c.Config.Value.GetMetadata().GetName()] = c.ID
	}
	resp := &runtime.RestorePodResponse{PodSandboxId: id}
	for _, config := range r.GetContainerConfigs() {
		name := config.GetMetadata().GetName()
		resp.RestoredContainers = append(resp.RestoredContainers, &runtime.RestoredContainer{Name: name, ContainerId: made[name]})
	}
	return resp, nil
}

// restoreAll makes the containers of a restored pod.
func (a *criuAPI) restoreAll(ctx context.Context, id string, configs []*runtime.ContainerConfig, archives map[string]string) error {
	for _, config := range configs {
		if _, err := a.checkpoints.Restore(ctx, id, config, archives[config.GetMetadata().GetName()]); err != nil {
			return err
		}
	}
	return nil
}

// checkRestore returns the containers' archives by their names.
func (a *criuAPI) checkRestore(ctx context.Context, r *runtime.RestorePodRequest) (map[string]string, error) {
	if _, ok := ctx.Deadline(); !ok {
		return nil, fmt.Errorf("the request has no deadline: %w", errdefs.ErrInvalidArgument)
	}
	h, err := a.handlers.Lookup(r.GetRuntimeHandler())
	if err != nil {
		return nil, err
	}
	if err := noOptions(r.GetOptions()); err != nil {
		return nil, err
	}
	if err := spec.ValidateSandbox(r.GetConfig()); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, c := range r.GetContainerConfigs() {
		name := c.GetMetadata().GetName()
		if name == "" || names[name] {
			return nil, fmt.Errorf("container name %q is empty or there twice: %w", name, errdefs.ErrInvalidArgument)
		}
		names[name] = true
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no container_configs: %w", errdefs.ErrInvalidArgument)
	}
	dir := r.GetCheckpointPath()
	if info, err := os.Stat(dir); !filepath.IsAbs(dir) || err != nil || !info.IsDir() {
		return nil, errors.Join(fmt.Errorf("checkpoint_path is not the absolute path of a folder: %w", errdefs.ErrInvalidArgument), err)
	}
	if h.Type == runtimeclass.WASM {
		return nil, missing(ctx, h.Type, h.Name)
	}
	archives, err := podArchives(dir, names)
	if err != nil {
		return nil, err
	}
	return archives, missing(ctx, h.Type, h.Name)
}

// podArchives finds the archives of a pod's checkpoint, which must be of exactly these containers.
func podArchives(dir string, names map[string]bool) (map[string]string, error) {
	var options checkpoint.PodOptions
	if err := checkpoint.ReadJSON(filepath.Join(dir, checkpoint.PodOptionsFile), &options); err != nil {
		return nil, err
	}
	if options.Version != 1 {
		return nil, fmt.Errorf("the checkpoint is of version %d, and 1 is known: %w", options.Version, errdefs.ErrInvalidArgument)
	}
	have, wanted := slices.Sorted(maps.Keys(options.Containers)), slices.Sorted(maps.Keys(names))
	if !slices.Equal(have, wanted) {
		return nil, fmt.Errorf("container_configs are for %q, and the checkpoint has %q: %w", wanted, have, errdefs.ErrInvalidArgument)
	}
	archives := map[string]string{}
	for name, file := range options.Containers {
		if file != filepath.Base(file) {
			return nil, fmt.Errorf("archive %q of the checkpoint is not a file name: %w", file, errdefs.ErrInvalidArgument)
		}
		archives[name] = filepath.Join(dir, file+archiveSuffix)
	}
	return archives, nil
}

func noOptions(options map[string]string) error {
	for key := range options {
		return fmt.Errorf("option %q is not known: %w", key, errdefs.ErrInvalidArgument)
	}
	return nil
}

func emptyFolder(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("output_path %q is not absolute: %w", path, errdefs.ErrInvalidArgument)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("output_path: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if len(entries) > 0 {
		return fmt.Errorf("output_path %q is not empty: %w", path, errdefs.ErrInvalidArgument)
	}
	return nil
}

// missing says why there is no checkpoint under a handler on this node: what somebody could change
// first.
func missing(ctx context.Context, t runtimeclass.Type, handler string) error {
	if t == runtimeclass.WASM {
		return fmt.Errorf("handler %q runs WebAssembly guests, whose engine cannot save and resume a running module; "+
			"checkpoints need a pod of an OCI handler: %w", handler, errdefs.ErrFailedPrecondition)
	}
	return checkpoint.Ready(ctx)
}
