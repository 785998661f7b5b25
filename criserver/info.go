package criserver

import (
	"context"
	"encoding/json"
	"fmt"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/criserver/stats"
)

// amounts are resources in the units people compare: thousandths of a core, and bytes.
type amounts struct {
	CPUMillis   int64 `json:"cpuMillis"`
	MemoryBytes int64 `json:"memoryBytes"`
}

// toAmounts reads limits as the kubelet sends them: the quota if there is one, else the shares; 1024 shares are a core.
func toAmounts(r *runtime.LinuxContainerResources) amounts {
	a := amounts{MemoryBytes: r.GetMemoryLimitInBytes()}
	switch {
	case r.GetCpuQuota() > 0 && r.GetCpuPeriod() > 0:
		a.CPUMillis = (r.GetCpuQuota()*1000 + r.GetCpuPeriod()/2) / r.GetCpuPeriod()
	case r.GetCpuShares() > 2: // 2 is the kernel's least and stands for none
		a.CPUMillis = (r.GetCpuShares()*1000 + 512) / 1024
	}
	return a
}

func (a amounts) plus(b amounts) amounts {
	return amounts{CPUMillis: a.CPUMillis + b.CPUMillis, MemoryBytes: a.MemoryBytes + b.MemoryBytes}
}

// podInfo is what a verbose PodSandboxStatus tells.
type podInfo struct {
	PID          int             `json:"pid"` // the shim's
	Handler      string          `json:"runtimeHandler"`
	HandlerType  string          `json:"handlerType"`
	CgroupParent string          `json:"cgroupParent"`
	Overhead     podOverhead     `json:"overhead"`
	Resources    podResources    `json:"resources"`
	Network      podNetwork      `json:"network"`
	Config       state.PodConfig `json:"config"`
}

// podOverhead sets what the RuntimeClass declares beside what is measured now.
type podOverhead struct {
	Declared declared       `json:"declared"`
	Measured stats.Overhead `json:"measured"`
}

type declared struct {
	amounts
	Limits state.Resources `json:"limits"` // as the client sent them
}

// podResources are the sums of the containers' resources, and with the overhead on top what the pod is charged.
type podResources struct {
	Declared  declared `json:"declared"`
	Effective amounts  `json:"effective"`
}

type podNetwork struct {
	Kind      string          `json:"kind"` // "host" or "pod"
	NetNS     string          `json:"netns,omitempty"`
	Interface string          `json:"interface,omitempty"`
	IPs       []string        `json:"ips,omitempty"`
	Raw       json.RawMessage `json:"raw,omitempty"`
}

func (a *sandboxAPI) sandboxInfo(ctx context.Context, rec state.Sandbox) (map[string]string, error) {
	overhead, resources := toAmounts(rec.Overhead.Value), toAmounts(rec.Resources.Value)
	measured, err := a.meter.overhead(ctx, rec)
	if err != nil {
		return nil, err
	}
	info := podInfo{
		Handler: rec.HandlerName, HandlerType: rec.HandlerType, CgroupParent: rec.CgroupParent,
		Overhead: podOverhead{Declared: declared{overhead, rec.Overhead}, Measured: measured},
		Resources: podResources{
			Declared: declared{resources, rec.Resources}, Effective: overhead.plus(resources),
		},
		Network: podNetwork{Kind: "host"},
		Config:  rec.Config,
	}
	if s, err := a.sandboxes.Sandbox(rec.ID); err == nil {
		if shim := s.Shim(); shim != nil {
			info.PID = shim.PID()
		}
		if ns := s.NetNS(rec.Config.Value); ns != "" {
			info.Network = podNetwork{Kind: "pod", NetNS: ns, Interface: rec.Network.Interface, Raw: rec.Network.Raw}
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
		info.Spec = spec // it is gone after a reboot
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
