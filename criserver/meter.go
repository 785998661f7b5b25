package criserver

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/criserver/stats"
	"github.com/sunaba-project/sunaba/images"
)

// meter measures pods and containers and puts the figures into the CRI's messages.
type meter struct {
	reader *stats.Reader
	rates  *stats.Rates
	o      Options
}

// container measures a container; one that does not run has its writable layer only.
func (m *meter) container(ctx context.Context, rec state.Container) (*runtime.ContainerStats, error) {
	config := rec.Config.Value
	out := &runtime.ContainerStats{Attributes: &runtime.ContainerAttributes{
		Id: rec.ID, Metadata: config.GetMetadata(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
	}}
	bytes, inodes, err := m.o.Images.RootFSUsage(ctx, rec.SnapshotKey)
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	out.WritableLayer = usage(images.Usage{Path: m.o.ImagesDir, Bytes: bytes, Inodes: inodes}, time.Now())
	if rec.Phase != state.Running {
		m.rates.Forget(rec.ID)
		return out, nil
	}
	cg := m.o.Cgroups.Path(rec.CgroupsPath)
	if out.Cpu, out.Memory, out.Swap, err = m.cgroup(rec.ID, cg); err != nil {
		return nil, err
	}
	return out, nil
}

// pod measures a whole sandbox, without its containers one by one.
func (m *meter) pod(rec state.Sandbox) (*runtime.LinuxPodSandboxStats, error) {
	cg := m.o.Cgroups.Path(rec.CgroupParent)
	out := &runtime.LinuxPodSandboxStats{}
	var err error
	if out.Cpu, out.Memory, _, err = m.cgroup(rec.ID, cg); err != nil {
		return nil, err
	}
	if n, err := m.reader.Processes(cg); err == nil {
		out.Process = &runtime.ProcessUsage{Timestamp: timestamp(), ProcessCount: value(n)}
	}
	s, err := m.o.Sandboxes.Sandbox(rec.ID)
	if err != nil {
		return nil, err
	}
	if ns := s.NetNS(rec.Config.Value); ns != "" {
		if out.Network, err = interfaces(ns, rec.Network.Interface); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (m *meter) cgroup(id, cg string) (*runtime.CpuUsage, *runtime.MemoryUsage, *runtime.SwapUsage, error) {
	c, err := m.reader.CPU(cg)
	if err != nil {
		return nil, nil, nil, err
	}
	cpu := &runtime.CpuUsage{Timestamp: c.At.UnixNano(), UsageCoreNanoSeconds: value(uint64(c.Usage))}
	if rate, ok := m.rates.NanoCores(id, c); ok {
		cpu.UsageNanoCores = value(rate)
	}
	u, err := m.reader.Memory(cg)
	if err != nil {
		return nil, nil, nil, err
	}
	at := u.At.UnixNano()
	memory := &runtime.MemoryUsage{
		Timestamp: at, WorkingSetBytes: value(u.WorkingSet), AvailableBytes: value(u.Available()), UsageBytes: value(u.Usage),
		RssBytes: value(u.RSS), PageFaults: value(u.Faults), MajorPageFaults: value(u.Major),
	}
	if !u.HasSwap {
		return cpu, memory, nil, nil
	}
	swap := &runtime.SwapUsage{Timestamp: at, SwapUsageBytes: value(u.Swap)}
	if u.SwapLimit > u.Swap {
		swap.SwapAvailableBytes = value(u.SwapLimit - u.Swap)
	}
	return cpu, memory, swap, nil
}

func interfaces(netns, first string) (*runtime.NetworkUsage, error) {
	links, err := stats.Interfaces(netns)
	if err != nil {
		return nil, err
	}
	out := &runtime.NetworkUsage{Timestamp: timestamp()}
	for _, l := range links {
		u := &runtime.NetworkInterfaceUsage{
			Name: l.Name, RxBytes: value(l.RxBytes), RxErrors: value(l.RxErrors), TxBytes: value(l.TxBytes), TxErrors: value(l.TxErrs),
		}
		if l.Name == first {
			out.DefaultInterface = u
		} else {
			out.Interfaces = append(out.Interfaces, u)
		}
	}
	return out, nil
}

// overhead measures what a sandbox costs beyond its containers' own work: shim, pause process, and the engines of
// guests, whose linear memory is the guests' own.
func (m *meter) overhead(ctx context.Context, rec state.Sandbox) (stats.Overhead, error) {
	s, err := m.o.Sandboxes.Sandbox(rec.ID)
	if err != nil {
		return stats.Overhead{}, err
	}
	shim := s.Shim()
	if shim == nil {
		return stats.Overhead{Parts: []stats.PartUsage{}}, nil
	}
	parts := []stats.Part{{Name: "shim", PID: shim.PID()}}
	if pid := s.PausePID(); pid != 0 {
		parts = append(parts, stats.Part{Name: "pause", PID: pid})
	}
	for _, c := range m.o.Containers.In(rec.ID) {
		if c.Phase != state.Running {
			continue
		}
		d, err := shim.Details(ctx, c.ID)
		if err != nil || d.LinearSize == 0 {
			continue // it has just ended, or is no guest
		}
		parts = append(parts, stats.Part{
			Name: "engine", Container: c.ID, PID: d.PID, LinearBase: d.LinearBase, LinearSize: d.LinearSize, CPU: d.EngineCPU,
		})
	}
	leaf := m.o.Cgroups.Path(m.o.Sandboxes.Leaf(rec, rec.ID))
	return m.reader.Overhead(leaf, parts)
}
