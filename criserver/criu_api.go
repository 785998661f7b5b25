package criserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// criuAPI answers the requests for checkpoints. This server makes none: each request is checked as if it did, so
// that the answer says what is wrong with the request, else what is missing. Nothing is ever written.
type criuAPI struct {
	sandboxes  *sandbox.Manager
	containers *container.Manager
	handlers   *runtimeclass.Table
}

func (a *criuAPI) CheckpointContainer(_ context.Context, r *runtime.CheckpointContainerRequest) (*runtime.CheckpointContainerResponse, error) {
	rec, err := a.containers.Get(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := a.checkContainer(rec, r); err != nil {
		return nil, fmt.Errorf("checkpoint container %q: %w", rec.ID, err)
	}
	return nil, nil
}

// checkContainer never returns nil.
func (a *criuAPI) checkContainer(rec state.Container, r *runtime.CheckpointContainerRequest) error {
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
	return missing(runtimeclass.Type(pod.HandlerType), pod.HandlerName)
}

func (a *criuAPI) CheckpointPod(ctx context.Context, r *runtime.CheckpointPodRequest) (*runtime.CheckpointPodResponse, error) {
	rec, err := a.sandboxes.Get(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if err := a.checkPod(ctx, rec, r); err != nil {
		return nil, fmt.Errorf("checkpoint pod %q: %w", rec.ID, err)
	}
	return nil, nil
}

// checkPod never returns nil.
func (a *criuAPI) checkPod(ctx context.Context, rec state.Sandbox, r *runtime.CheckpointPodRequest) error {
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
	var running []string
	for _, c := range a.containers.In(rec.ID) {
		if c.Phase == state.Running {
			running = append(running, c.ID)
		}
	}
	given := slices.Clone(r.GetContainerIds())
	slices.Sort(running)
	slices.Sort(given)
	if len(given) == 0 || !slices.Equal(given, running) {
		return fmt.Errorf("container_ids are %q, but %q run: %w", given, running, errdefs.ErrInvalidArgument)
	}
	return missing(runtimeclass.Type(rec.HandlerType), rec.HandlerName)
}

func (a *criuAPI) RestorePod(_ context.Context, r *runtime.RestorePodRequest) (*runtime.RestorePodResponse, error) {
	if err := a.checkRestore(r); err != nil {
		return nil, fmt.Errorf("restore pod from %q: %w", r.GetCheckpointPath(), err)
	}
	return nil, nil
}

// checkRestore never returns nil.
func (a *criuAPI) checkRestore(r *runtime.RestorePodRequest) error {
	h, err := a.handlers.Lookup(r.GetRuntimeHandler())
	if err != nil {
		return err
	}
	if err := noOptions(r.GetOptions()); err != nil {
		return err
	}
	if err := spec.ValidateSandbox(r.GetConfig()); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, c := range r.GetContainerConfigs() {
		name := c.GetMetadata().GetName()
		if name == "" || names[name] {
			return fmt.Errorf("container name %q is empty or there twice: %w", name, errdefs.ErrInvalidArgument)
		}
		names[name] = true
	}
	if len(names) == 0 {
		return fmt.Errorf("no container_configs: %w", errdefs.ErrInvalidArgument)
	}
	if info, err := os.Stat(r.GetCheckpointPath()); !filepath.IsAbs(r.GetCheckpointPath()) || err != nil || !info.IsDir() {
		return errors.Join(fmt.Errorf("checkpoint_path is not the absolute path of a folder: %w", errdefs.ErrInvalidArgument), err)
	}
	return missing(h.Type, h.Name)
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

// missing says why there is no checkpoint under a handler: what somebody could change first.
func missing(t runtimeclass.Type, handler string) error {
	if t == runtimeclass.WASM {
		return fmt.Errorf("handler %q runs WebAssembly guests, whose engine cannot save and resume a running module; "+
			"checkpoints need a pod of an OCI handler: %w", handler, errdefs.ErrFailedPrecondition)
	}
	if _, err := exec.LookPath("criu"); err != nil {
		return fmt.Errorf("criu is not installed on this node (looked for it in PATH): %w", errdefs.ErrFailedPrecondition)
	}
	return fmt.Errorf("sunaba does not make or restore checkpoints yet: %w", errdefs.ErrNotImplemented)
}
