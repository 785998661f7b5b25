package criserver

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
)

// statsAPI answers the requests about what pods and containers use.
type statsAPI struct {
	sandboxes  *sandbox.Manager
	containers *container.Manager
	meter      *meter
}

func (a *statsAPI) ContainerStats(ctx context.Context, r *runtime.ContainerStatsRequest) (*runtime.ContainerStatsResponse, error) {
	rec, err := a.containers.Get(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	stats, err := a.meter.container(ctx, rec)
	if err != nil {
		return nil, fmt.Errorf("measure container %q: %w", rec.ID, err)
	}
	return &runtime.ContainerStatsResponse{Stats: stats}, nil
}

func (a *statsAPI) ListContainerStats(ctx context.Context, r *runtime.ListContainerStatsRequest) (*runtime.ListContainerStatsResponse, error) {
	items, err := a.listContainers(ctx, r.GetFilter())
	return &runtime.ListContainerStatsResponse{Stats: items}, err
}

func (a *statsAPI) StreamContainerStats(r *runtime.StreamContainerStatsRequest, out runtime.RuntimeService_StreamContainerStatsServer) error {
	items, err := a.listContainers(out.Context(), r.GetFilter())
	if err != nil {
		return err
	}
	return inBatches(items, func(part []*runtime.ContainerStats) error {
		return out.Send(&runtime.StreamContainerStatsResponse{ContainerStats: part})
	})
}

// listContainers measures the running containers; one that ends at this moment is left out.
func (a *statsAPI) listContainers(ctx context.Context, f *runtime.ContainerStatsFilter) ([]*runtime.ContainerStats, error) {
	items := []*runtime.ContainerStats{}
	for _, rec := range a.containers.List() {
		if rec.Phase != state.Running || !hasPrefix(rec.ID, f.GetId()) || !hasPrefix(rec.SandboxID, f.GetPodSandboxId()) ||
			!hasLabels(rec.Config.Value.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		stats, err := a.meter.container(ctx, rec)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			a.meter.o.Logger.Warn("measure container", "container", rec.ID, "error", err)
			continue
		}
		items = append(items, stats)
	}
	return items, nil
}

func (a *statsAPI) PodSandboxStats(ctx context.Context, r *runtime.PodSandboxStatsRequest) (*runtime.PodSandboxStatsResponse, error) {
	rec, err := a.sandboxes.Get(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	stats, err := a.pod(ctx, rec)
	if err != nil {
		return nil, fmt.Errorf("measure sandbox %q: %w", rec.ID, err)
	}
	return &runtime.PodSandboxStatsResponse{Stats: stats}, nil
}

func (a *statsAPI) ListPodSandboxStats(ctx context.Context, r *runtime.ListPodSandboxStatsRequest) (*runtime.ListPodSandboxStatsResponse, error) {
	items, err := a.listPods(ctx, r.GetFilter())
	return &runtime.ListPodSandboxStatsResponse{Stats: items}, err
}

func (a *statsAPI) StreamPodSandboxStats(r *runtime.StreamPodSandboxStatsRequest, out runtime.RuntimeService_StreamPodSandboxStatsServer) error {
	items, err := a.listPods(out.Context(), r.GetFilter())
	if err != nil {
		return err
	}
	return inBatches(items, func(part []*runtime.PodSandboxStats) error {
		return out.Send(&runtime.StreamPodSandboxStatsResponse{PodSandboxStats: part})
	})
}

func (a *statsAPI) listPods(ctx context.Context, f *runtime.PodSandboxStatsFilter) ([]*runtime.PodSandboxStats, error) {
	items := []*runtime.PodSandboxStats{}
	for _, rec := range a.sandboxes.List() {
		if rec.Phase != state.Ready || !hasPrefix(rec.ID, f.GetId()) || !hasLabels(rec.Config.Value.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		stats, err := a.pod(ctx, rec)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			if !errdefs.IsNotFound(err) {
				a.meter.o.Logger.Warn("measure sandbox", "sandbox", rec.ID, "error", err)
			}
			continue
		}
		items = append(items, stats)
	}
	return items, nil
}

// pod measures a sandbox and its running containers. One that is stopped has attributes only.
func (a *statsAPI) pod(ctx context.Context, rec state.Sandbox) (*runtime.PodSandboxStats, error) {
	config := rec.Config.Value
	out := &runtime.PodSandboxStats{
		Attributes: &runtime.PodSandboxAttributes{
			Id: rec.ID, Metadata: config.GetMetadata(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		},
		Linux: &runtime.LinuxPodSandboxStats{},
	}
	if rec.Phase != state.Ready {
		return out, nil
	}
	var err error
	if out.Linux, err = a.meter.pod(rec); err != nil {
		return nil, err
	}
	out.Linux.Containers, err = a.listContainers(ctx, &runtime.ContainerStatsFilter{PodSandboxId: rec.ID})
	return out, err
}

func timestamp() int64 { return time.Now().UnixNano() }
