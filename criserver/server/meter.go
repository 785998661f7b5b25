package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/criserver/stats"
	"github.com/sunaba-project/sunaba/host/cgroup/usage"
	"github.com/sunaba-project/sunaba/images"
)

// meter measures pods and containers and puts the figures into the CRI's messages.
type meter struct {
	reader *stats.Reader
	rates  *stats.Rates
	layers *stats.Layers
	o      Options
	// engines are those of running guests.
	engines *engines
	// imagesDevice names the device that images and containers' layers are on; it is looked for once.
	imagesDevice func() string
}

func newMeter(o Options) *meter {
	return &meter{
		reader: stats.NewReader(o.Cgroups.Mounts), rates: &stats.Rates{}, layers: &stats.Layers{Measure: o.Images.RootFSUsage}, o: o, engines: newEngines(),
		imagesDevice: sync.OnceValue(func() string {
			device, err := findDevice(o.ImagesDir)
			if err != nil {
				o.Logger.Warn("failed to measure file system of images", "error", err)
			}
			return device
		}),
	}
}

// container measures a container; one that does not run has its writable layer only.
func (m *meter) container(ctx context.Context, rec state.Container) (*runtime.ContainerStats, error) {
	config := rec.Config.Value
	out := &runtime.ContainerStats{Attributes: &runtime.ContainerAttributes{
		Id: rec.ID, Metadata: config.GetMetadata(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
	}}
	layer, err := m.layer(ctx, rec)
	if err != nil {
		return nil, err
	}
	out.WritableLayer = usageOf(images.Usage{Path: m.o.ImagesDir, Bytes: layer.Bytes, Inodes: layer.Inodes}, layer.At)
	if rec.Phase != state.Running {
		m.rates.Forget(rec.ID)
		return out, nil
	}
	u, err := m.cgroup(rec.ID, m.o.Cgroups.Path(rec.CgroupsPath), true)
	if err != nil {
		return nil, err
	}
	out.Cpu, out.Memory, out.Swap, out.Io = u.cpu, u.memory, u.swap, u.io
	return out, nil
}

// layer measures a container's writable layer; one that has none takes nothing.
func (m *meter) layer(ctx context.Context, rec state.Container) (stats.LayerUsage, error) {
	u, err := m.layers.Usage(ctx, rec.SnapshotKey)
	if errdefs.IsNotFound(err) {
		return stats.LayerUsage{At: time.Now()}, nil
	}
	return u, err
}

// pod measures a whole sandbox, whose running containers are given, with those that were measured.
func (m *meter) pod(rec state.Sandbox, containers []*state.Container, parts []*runtime.ContainerStats) (*runtime.LinuxPodSandboxStats, error) {
	cg := m.o.Cgroups.Path(rec.CgroupParent)
	u, err := m.cgroup(rec.ID, cg, pressed(parts))
	if err != nil {
		return nil, err
	}
	out := &runtime.LinuxPodSandboxStats{Cpu: u.cpu, Memory: u.memory, Io: u.io}
	if n, err := m.reader.Processes(cg); err == nil {
		out.Process = &runtime.ProcessUsage{Timestamp: timestamp(), ProcessCount: value(n)}
	}
	links, err := m.links(rec, containers)
	if err != nil {
		return nil, err
	}
	if links != nil {
		out.Network = traffic(links, rec.Network.Interface)
	}
	return out, nil
}

// pressed says whether a pod with these containers may have pressures. Beside version 1 the kernel
// keeps none of guests: those of their pod would say nothing of them.
func pressed(parts []*runtime.ContainerStats) bool {
	return len(parts) == 0 || slices.ContainsFunc(parts, func(c *runtime.ContainerStats) bool { return c.GetCpu().GetPsi() != nil })
}

// cgroupUsage is what a cgroup uses, in the CRI's messages. swap and io are nil where the kernel
// does not account for it.
type cgroupUsage struct {
	cpu    *runtime.CpuUsage
	memory *runtime.MemoryUsage
	swap   *runtime.SwapUsage
	io     *runtime.IoUsage
}

// cgroup measures one, with its pressures if it is pressed.
func (m *meter) cgroup(id, cg string, pressed bool) (cgroupUsage, error) {
	var out cgroupUsage
	c, err := m.reader.CPU(cg)
	if err != nil {
		return out, err
	}
	u, err := m.reader.Memory(cg)
	if err != nil {
		return out, err
	}
	out.cpu = &runtime.CpuUsage{Timestamp: c.At.UnixNano(), UsageCoreNanoSeconds: value(uint64(c.Usage))}
	if rate, ok := m.rates.NanoCores(id, c); ok {
		out.cpu.UsageNanoCores = value(rate)
	}
	at := u.At.UnixNano()
	out.memory = &runtime.MemoryUsage{
		Timestamp: at, WorkingSetBytes: value(u.WorkingSet), AvailableBytes: value(u.Available()), UsageBytes: value(u.Usage),
		RssBytes: value(u.RSS), PageFaults: value(u.Faults), MajorPageFaults: value(u.Major),
	}
	var p usage.Pressures
	if pressed {
		p = m.reader.Pressures(cg)
	}
	out.cpu.Psi, out.memory.Psi = psi(p.CPU), psi(p.Memory)
	if p.IO != nil {
		out.io = &runtime.IoUsage{Timestamp: timestamp(), Psi: psi(p.IO)}
	}
	if !u.HasSwap {
		return out, nil
	}
	out.swap = &runtime.SwapUsage{Timestamp: at, SwapUsageBytes: value(u.Swap)}
	if u.SwapLimit > u.Swap {
		out.swap.SwapAvailableBytes = value(u.SwapLimit - u.Swap)
	}
	return out, nil
}

func psi(p *usage.Pressure) *runtime.PsiStats {
	if p == nil {
		return nil
	}
	data := func(s usage.Stall) *runtime.PsiData {
		return &runtime.PsiData{Total: uint64(s.Total), Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
	}
	return &runtime.PsiStats{Full: data(p.Full), Some: data(p.Some)}
}

func traffic(links []stats.Interface, first string) *runtime.NetworkUsage {
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
	return out
}

// overhead measures what a sandbox costs beyond its containers' own work: shim, pause process, a
// guest process that waits for a container, and the engines of guests, whose linear memory is the
// guests' own.
func (m *meter) overhead(ctx context.Context, rec state.Sandbox) (stats.Overhead, error) {
	s, err := m.o.Sandboxes.Sandbox(rec.ID)
	if err != nil {
		return stats.Overhead{}, err
	}
	shim := s.Shim()
	if shim == nil {
		return stats.Overhead{Parts: []stats.PartUsage{}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, enginesLimit)
	defer cancel()
	var parts []stats.Part
	for _, p := range s.ShimCost(rec) {
		parts = append(parts, stats.Part{Name: p.Name, PID: p.PID, Pods: p.Pods, CPU: p.CPU})
	}
	if pid := s.PausePID(); pid != 0 {
		parts = append(parts, stats.Part{Name: "pause", PID: pid})
	}
	drawn, err := m.o.Sandboxes.DrawnLeaves(rec)
	if err != nil {
		return stats.Overhead{}, err
	}
	containers := m.o.Containers.In(rec.ID)
	for _, c := range containers {
		delete(drawn, c.ID)
	}
	for _, leaf := range drawn {
		parts = append(parts, m.reader.Prewarmed(m.o.Cgroups.Path(leaf), shim.PID())...)
	}
	for _, c := range containers {
		if c.Phase == state.Created { // its shim may have made it ahead
			for _, p := range m.reader.Prewarmed(m.o.Cgroups.Path(c.CgroupsPath), shim.PID()) {
				p.Container = c.ID
				parts = append(parts, p)
			}
		}
		if c.Phase != state.Running {
			continue
		}
		if engine, ok := m.engines.of(ctx, c.ID, shim.Details, m.there); ok {
			parts = append(parts, engine)
		}
	}
	leaf := m.o.Cgroups.Path(m.o.Sandboxes.Leaf(rec, rec.ID))
	return m.reader.Overhead(leaf, parts)
}

// enginesLimit is how long a pod's shim may take to tell of its engines. Without them, what the
// rest costs is measured.
const enginesLimit = 2 * time.Second

func (m *meter) there(container string) bool {
	_, err := m.o.Containers.Get(container)
	return err == nil
}
