package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sunaba-project/sunaba/criserver/overhead"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/criserver/stats"
	"github.com/sunaba-project/sunaba/runtimeclass"
)

// PodInfo is, as JSON under "info", what a verbose PodSandboxStatus tells.
type PodInfo struct {
	PID          int                `json:"pid"` // the shim's
	Handler      string             `json:"runtimeHandler"`
	HandlerType  string             `json:"handlerType"`
	ShimScope    runtimeclass.Scope `json:"shimScope"`
	CgroupParent string             `json:"cgroupParent"`
	Memory       PodMemory          `json:"memory"`
	Overhead     PodOverhead        `json:"overhead"`
	Resources    PodResources       `json:"resources"`
	Network      PodNetwork         `json:"network"`
	Config       state.PodConfig    `json:"config"`
}

// PodMemory is what the pod costs the node now, in bytes: what its containers use themselves, and
// its overhead.
type PodMemory struct {
	Containers uint64 `json:"containersBytes"`
	Overhead   uint64 `json:"overheadBytes"`
	Total      uint64 `json:"totalBytes"`
}

// PodOverhead sets what the RuntimeClass declares beside what is measured now. Verdict and CPU rate
// are those of the last sample, Class is the RuntimeClass where one can be told from handler and
// overhead.
type PodOverhead struct {
	Class     string           `json:"class,omitempty"`
	Declared  Declared         `json:"declared"`
	Measured  stats.Overhead   `json:"measured"`
	CPUMillis int64            `json:"cpuMillis"`
	Verdict   overhead.Verdict `json:"verdict,omitempty"`
}

// Declared are amounts as the client declared them.
type Declared struct {
	overhead.Amounts
	Limits state.Resources `json:"limits"` // as the client sent them
}

// PodResources are the sums of the containers' resources, and with the overhead on top what the pod
// is charged.
type PodResources struct {
	Declared  Declared         `json:"declared"`
	Effective overhead.Amounts `json:"effective"`
}

// PodNetwork is where a pod is reached.
type PodNetwork struct {
	Kind      string          `json:"kind"` // "host" or "pod"
	NetNS     string          `json:"netns,omitempty"`
	Interface string          `json:"interface,omitempty"`
	IPs       []string        `json:"ips,omitempty"`
	Raw       json.RawMessage `json:"raw,omitempty"`
}

func (a *sandboxAPI) sandboxInfo(ctx context.Context, rec state.Sandbox) (map[string]string, error) {
	extra, resources := overhead.ToAmounts(rec.Overhead.Value), overhead.ToAmounts(rec.Resources.Value)
	measured, err := a.meter.overhead(ctx, rec)
	if err != nil {
		return nil, err
	}
	info := PodInfo{
		Handler: rec.HandlerName, HandlerType: rec.HandlerType, ShimScope: cmp.Or(rec.ShimScope, runtimeclass.ScopePod), CgroupParent: rec.CgroupParent,
		Overhead: PodOverhead{Declared: Declared{extra, rec.Overhead}, Measured: measured, Class: a.meter.class(rec)},
		Resources: PodResources{
			Declared: Declared{resources, rec.Resources}, Effective: extra.Plus(resources),
		},
		Network: PodNetwork{Kind: "host"},
		Config:  rec.Config,
	}
	if used, err := a.meter.reader.Memory(a.meter.o.Cgroups.Path(rec.CgroupParent)); err == nil { // a pod that ends has no cgroup
		own := measured.Own(used.WorkingSet)
		info.Memory = PodMemory{Containers: own, Overhead: measured.MemoryBytes, Total: own + measured.MemoryBytes}
	}
	newest := a.overheads.Asked(a.meter.pricedPod(rec), overhead.Sample{
		At: time.Now(), MemoryBytes: int64(measured.MemoryBytes), CPU: time.Duration(measured.CPUNanos),
	})
	info.Overhead.CPUMillis, info.Overhead.Verdict = newest.Sample.CPUMillis, newest.Verdict
	if s, err := a.sandboxes.Sandbox(rec.ID); err == nil {
		if shim := s.Shim(); shim != nil {
			info.PID = shim.PID()
		}
		if ns := s.NetNamespace(rec.Config.Value); ns != "" {
			info.Network = PodNetwork{Kind: "pod", NetNS: ns, Interface: rec.Network.Interface, Raw: rec.Network.Raw}
		}
	}
	for _, ip := range rec.Network.IPs {
		info.Network.IPs = append(info.Network.IPs, ip.String())
	}
	return toInfo(info)
}

// containerDetails is what a verbose ContainerStatus tells.
type containerDetails struct {
	SandboxID   string                `json:"sandboxID"`
	PID         int                   `json:"pid"`
	Handler     string                `json:"runtimeHandler"`
	Platform    string                `json:"imagePlatform"`
	SnapshotKey string                `json:"snapshotKey"`
	Config      state.ContainerConfig `json:"config"`
	Spec        json.RawMessage       `json:"runtimeSpec,omitempty"`
}

func (a *containerAPI) containerInfo(rec state.Container) (map[string]string, error) {
	info := containerDetails{
		SandboxID: rec.SandboxID, Platform: rec.ImagePlatform, SnapshotKey: rec.SnapshotKey, Config: rec.Config,
	}
	if rec.Phase == state.Running {
		info.PID = rec.PID
	}
	if pod, err := a.sandboxes.Get(rec.SandboxID); err == nil {
		info.Handler = pod.HandlerName
	}
	if spec, err := a.containers.Spec(rec); err == nil {
		info.Spec = spec // it does not survive a reboot
	}
	return toInfo(info)
}

// toInfo puts a value where crictl shows it.
func toInfo(v any) (map[string]string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("describe: %w", err)
	}
	return map[string]string{"info": string(data)}, nil
}
