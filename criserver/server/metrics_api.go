package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/criserver/metrics"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/criserver/stats"
	"github.com/sunaba-project/sunaba/host/cgroup/usage"
)

// metricsAPI answers the requests for metrics as cAdvisor would give them.
type metricsAPI struct {
	sandboxes  *sandbox.Manager
	containers *container.Manager
	meter      *meter
	table      *metrics.Table
}

func (a *metricsAPI) ListMetricDescriptors(context.Context, *runtime.ListMetricDescriptorsRequest) (*runtime.ListMetricDescriptorsResponse, error) {
	return &runtime.ListMetricDescriptorsResponse{Descriptors: a.table.Descriptors()}, nil
}

func (a *metricsAPI) ListPodSandboxMetrics(ctx context.Context, _ *runtime.ListPodSandboxMetricsRequest) (*runtime.ListPodSandboxMetricsResponse, error) {
	pods, err := a.metrics(ctx, a.ready(), runningByPod(a.containers.List()))
	return &runtime.ListPodSandboxMetricsResponse{PodMetrics: pods}, err
}

// metricsBatch is how many pods one message of the stream carries: a container has some 10 KiB of
// metrics.
const metricsBatch = 25

func (a *metricsAPI) StreamPodSandboxMetrics(_ *runtime.StreamPodSandboxMetricsRequest, out runtime.RuntimeService_StreamPodSandboxMetricsServer) error {
	recs, containers := a.ready(), runningByPod(a.containers.List())
	for len(recs) > 0 {
		n := min(metricsBatch, len(recs))
		pods, err := a.metrics(out.Context(), recs[:n], containers)
		if err != nil {
			return err
		}
		recs = recs[n:]
		if len(pods) == 0 {
			continue
		}
		if err := out.Send(&runtime.StreamPodSandboxMetricsResponse{PodSandboxMetrics: pods}); err != nil {
			return err
		}
	}
	return nil
}

func (a *metricsAPI) ready() []state.Sandbox {
	return slices.DeleteFunc(a.sandboxes.List(), func(rec state.Sandbox) bool { return rec.Phase != state.Ready })
}

// metrics measures pods and their running containers. What ends at this moment is left out.
func (a *metricsAPI) metrics(ctx context.Context, recs []state.Sandbox, containers map[string][]*state.Container) ([]*runtime.PodSandboxMetrics, error) {
	fs := a.meter.fileSystem()
	return measure(ctx, recs, func(rec state.Sandbox) (*runtime.PodSandboxMetrics, error) {
		var parts []*runtime.ContainerMetrics // before the pod, which has never used less than they
		for _, c := range containers[rec.ID] {
			m, err := a.container(ctx, rec, *c, fs)
			if a.meter.excuse("container", c.ID, err) == nil {
				parts = append(parts, m)
			}
		}
		out, err := a.pod(rec, containers[rec.ID])
		if err != nil {
			return nil, a.meter.excuse("sandbox", rec.ID, err)
		}
		out.ContainerMetrics = parts
		return out, nil
	})
}

func (a *metricsAPI) pod(rec state.Sandbox, containers []*state.Container) (*runtime.PodSandboxMetrics, error) {
	cg := a.meter.o.Cgroups.Path(rec.CgroupParent)
	sample, err := a.sample(cg, sandbox.Limits(rec).Shares)
	if err != nil {
		return nil, err
	}
	links, err := a.meter.links(rec, containers)
	if err != nil {
		return nil, err
	}
	md := rec.Config.Value.GetMetadata()
	return &runtime.PodSandboxMetrics{PodSandboxId: rec.ID, Metrics: a.table.Pod(metrics.Object{
		Cgroup: cg, ID: rec.ID, Namespace: md.GetNamespace(), Pod: md.GetName(), Started: rec.CreatedAt,
	}, sample, links)}, nil
}

func (a *metricsAPI) container(ctx context.Context, pod state.Sandbox, rec state.Container, fs metrics.FileSystem) (*runtime.ContainerMetrics, error) {
	cg := a.meter.o.Cgroups.Path(rec.CgroupsPath)
	sample, err := a.sample(cg, uint64(max(rec.Resources.Value.GetCpuShares(), 0)))
	if err != nil {
		return nil, err
	}
	// The limit that was asked for: a guest's cgroup may have the engine's part beside it.
	if asked := uint64(max(rec.Resources.Value.GetMemoryLimitInBytes(), 0)); asked > 0 {
		sample.Memory.Limit = min(sample.Memory.Limit, asked)
	}
	layer, err := a.meter.layer(ctx, rec)
	if err != nil {
		return nil, err
	}
	fs.Used = uint64(max(layer.Bytes, 0))
	md := pod.Config.Value.GetMetadata()
	return &runtime.ContainerMetrics{ContainerId: rec.ID, Metrics: a.table.Container(metrics.Object{
		Container: rec.Config.Value.GetMetadata().GetName(), Cgroup: cg, Image: rec.ImageName, ID: rec.ID,
		Namespace: md.GetNamespace(), Pod: md.GetName(), Started: rec.StartedAt,
	}, sample, a.meter.reader.Tasks(cg, rec.PID), fs)}, nil
}

// sample reads a cgroup, for which these shares were asked, 0 for none. A weight of version 2 does
// not say which shares it was made of: runtimes have two formulas.
func (a *metricsAPI) sample(cg string, shares uint64) (usage.Sample, error) {
	s, err := a.meter.reader.Sample(cg)
	if shares > 0 && a.meter.o.Cgroups.Unified != "" {
		s.Shares = shares
	}
	return s, err
}

// links are the interfaces of a sandbox, whose running containers are given; nil for one on the
// node's network.
func (m *meter) links(rec state.Sandbox, containers []*state.Container) ([]stats.Interface, error) {
	s, err := m.o.Sandboxes.Sandbox(rec.ID)
	if err != nil {
		return nil, err
	}
	ns := s.NetNamespace(rec.Config.Value)
	if ns == "" {
		return nil, nil
	}
	pids := make([]int, 0, len(containers))
	for _, c := range containers {
		pids = append(pids, c.PID)
	}
	return stats.Interfaces(ns, pids...)
}

// fileSystem is where containers write to; zero if it cannot be measured.
func (m *meter) fileSystem() metrics.FileSystem {
	var st unix.Statfs_t
	if err := unix.Statfs(m.o.ImagesDir, &st); err != nil {
		m.o.Logger.Warn("failed to measure file system of images", "error", err)
		return metrics.FileSystem{}
	}
	return metrics.FileSystem{
		Device: m.imagesDevice(), Limit: st.Blocks * uint64(st.Bsize), Inodes: st.Files, Free: st.Ffree,
	}
}

// findDevice names what the file system of a folder is on, as the mount table does.
func findDevice(dir string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", fmt.Errorf("find device of %q: %w", dir, err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(dir))
	if err != nil {
		return "", fmt.Errorf("find device of %q: %w", dir, err)
	}
	device := ""
	for _, m := range mounts {
		if uint64(m.Major) == uint64(unix.Major(uint64(st.Dev))) && uint64(m.Minor) == uint64(unix.Minor(uint64(st.Dev))) {
			device = m.Source
		}
	}
	return device, nil
}
