package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
		return nil, fmt.Errorf("measure container %q: %w", rec.Name(), err)
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
	recs := slices.DeleteFunc(a.containers.List(), func(rec state.Container) bool {
		return rec.Phase != state.Running || !matches(f, rec.ID, rec.Config.Value.GetLabels()) ||
			!strings.HasPrefix(rec.SandboxID, f.GetPodSandboxId())
	})
	return measure(ctx, recs, func(rec state.Container) (*runtime.ContainerStats, error) {
		stats, err := a.meter.container(ctx, rec)
		return stats, a.meter.excuse("container", rec.ID, err)
	})
}

func (a *statsAPI) PodSandboxStats(ctx context.Context, r *runtime.PodSandboxStatsRequest) (*runtime.PodSandboxStatsResponse, error) {
	rec, err := a.sandboxes.Get(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	stats, err := a.pod(ctx, rec)
	if err != nil {
		return nil, fmt.Errorf("measure sandbox %q: %w", rec.Name(), err)
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
	recs := slices.DeleteFunc(a.sandboxes.List(), func(rec state.Sandbox) bool {
		return rec.Phase != state.Ready || !matches(f, rec.ID, rec.Config.Value.GetLabels())
	})
	containers := runningByPod(a.containers.List())
	return measure(ctx, recs, func(rec state.Sandbox) (*runtime.PodSandboxStats, error) {
		stats, err := a.measurePod(ctx, rec, containers[rec.ID])
		return stats, a.meter.excuse("sandbox", rec.ID, err)
	})
}

// runningByPod sorts the running containers by their sandboxes' ids.
func runningByPod(all []state.Container) map[string][]*state.Container {
	out := map[string][]*state.Container{}
	for i := range all {
		if rec := &all[i]; rec.Phase == state.Running {
			out[rec.SandboxID] = append(out[rec.SandboxID], rec)
		}
	}
	return out
}

// pod measures a sandbox and its running containers. One that is stopped has attributes only.
func (a *statsAPI) pod(ctx context.Context, rec state.Sandbox) (*runtime.PodSandboxStats, error) {
	if rec.Phase != state.Ready {
		return &runtime.PodSandboxStats{Attributes: podAttributes(rec), Linux: &runtime.LinuxPodSandboxStats{}}, nil
	}
	return a.measurePod(ctx, rec, runningByPod(a.containers.In(rec.ID))[rec.ID])
}

func (a *statsAPI) measurePod(ctx context.Context, rec state.Sandbox, containers []*state.Container) (*runtime.PodSandboxStats, error) {
	parts := []*runtime.ContainerStats{} // before the pod, which has never used less than they
	for _, c := range containers {
		stats, err := a.meter.container(ctx, *c)
		if err := a.meter.excuse("container", c.ID, err); err == nil {
			parts = append(parts, stats)
		}
	}
	linux, err := a.meter.pod(rec, containers, parts)
	if err != nil {
		return nil, err
	}
	linux.Containers = parts
	return &runtime.PodSandboxStats{Attributes: podAttributes(rec), Linux: linux}, nil
}

func podAttributes(rec state.Sandbox) *runtime.PodSandboxAttributes {
	config := rec.Config.Value
	return &runtime.PodSandboxAttributes{
		Id: rec.ID, Metadata: config.GetMetadata(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
	}
}

func timestamp() int64 { return time.Now().UnixNano() }
