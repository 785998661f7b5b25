package server

import (
	"cmp"
	"context"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/container"
	"github.com/sunaba-project/sunaba/criserver/overhead"
	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/state"
)

// sandboxAPI answers the requests about pod sandboxes.
type sandboxAPI struct {
	sandboxes  *sandbox.Manager
	containers *container.Manager
	meter      *meter
	overheads  *overhead.Watch
}

func (a *sandboxAPI) RunPodSandbox(ctx context.Context, r *runtime.RunPodSandboxRequest) (*runtime.RunPodSandboxResponse, error) {
	id, err := a.sandboxes.Run(ctx, r.GetConfig(), r.GetRuntimeHandler())
	if err != nil {
		return nil, err
	}
	return &runtime.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (a *sandboxAPI) StopPodSandbox(ctx context.Context, r *runtime.StopPodSandboxRequest) (*runtime.StopPodSandboxResponse, error) {
	return &runtime.StopPodSandboxResponse{}, a.sandboxes.Stop(ctx, r.GetPodSandboxId(), a.containers.StopAll)
}

func (a *sandboxAPI) RemovePodSandbox(ctx context.Context, r *runtime.RemovePodSandboxRequest) (*runtime.RemovePodSandboxResponse, error) {
	return &runtime.RemovePodSandboxResponse{}, a.sandboxes.Remove(ctx, r.GetPodSandboxId(), a.containers.StopAll, a.containers.RemoveAll)
}

func (a *sandboxAPI) PodSandboxStatus(ctx context.Context, r *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error) {
	now := time.Now() // before what it is about is read: an event of that time or later may say more
	rec, err := a.sandboxes.Get(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	resp := &runtime.PodSandboxStatusResponse{Status: sandboxStatus(rec), Timestamp: now.UnixNano()}
	for _, c := range a.containers.In(rec.ID) {
		resp.ContainersStatuses = append(resp.ContainersStatuses, containerStatus(c))
	}
	if r.GetVerbose() {
		if resp.Info, err = a.sandboxInfo(ctx, rec); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

func (a *sandboxAPI) ListPodSandbox(_ context.Context, r *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	return &runtime.ListPodSandboxResponse{Items: a.list(r.GetFilter())}, nil
}

func (a *sandboxAPI) StreamPodSandboxes(r *runtime.StreamPodSandboxesRequest, out runtime.RuntimeService_StreamPodSandboxesServer) error {
	return inBatches(a.list(r.GetFilter()), func(part []*runtime.PodSandbox) error {
		return out.Send(&runtime.StreamPodSandboxesResponse{PodSandboxes: part})
	})
}

func (a *sandboxAPI) list(f *runtime.PodSandboxFilter) []*runtime.PodSandbox {
	return items(a.sandboxes.List(), func(rec state.Sandbox) bool {
		return matches(f, rec.ID, rec.Config.Value.GetLabels()) && (f.GetState() == nil || f.GetState().GetState() == sandboxState(rec))
	}, sandboxItem)
}

func (a *sandboxAPI) UpdatePodSandboxResources(_ context.Context, r *runtime.UpdatePodSandboxResourcesRequest) (*runtime.UpdatePodSandboxResourcesResponse, error) {
	rec, err := a.sandboxes.Get(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &runtime.UpdatePodSandboxResourcesResponse{}, a.sandboxes.SetResources(rec, r.GetOverhead(), r.GetResources())
}

func sandboxState(rec state.Sandbox) runtime.PodSandboxState {
	if rec.Phase == state.Ready {
		return runtime.PodSandboxState_SANDBOX_READY
	}
	return runtime.PodSandboxState_SANDBOX_NOTREADY
}

func sandboxItem(rec state.Sandbox) *runtime.PodSandbox {
	config := rec.Config.Value
	return &runtime.PodSandbox{
		Id: rec.ID, Metadata: config.GetMetadata(), State: sandboxState(rec), CreatedAt: rec.CreatedAt.UnixNano(),
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(), RuntimeHandler: rec.Handler,
	}
}

func sandboxStatus(rec state.Sandbox) *runtime.PodSandboxStatus {
	config := rec.Config.Value
	options := cmp.Or(config.GetLinux().GetSecurityContext().GetNamespaceOptions(), &runtime.NamespaceOption{})
	return &runtime.PodSandboxStatus{
		Id: rec.ID, Metadata: config.GetMetadata(), State: sandboxState(rec), CreatedAt: rec.CreatedAt.UnixNano(),
		Network: sandboxNetwork(rec),
		Linux:   &runtime.LinuxPodSandboxStatus{Namespaces: &runtime.Namespace{Options: options}},
		Labels:  config.GetLabels(), Annotations: config.GetAnnotations(), RuntimeHandler: rec.Handler,
	}
}

func sandboxNetwork(rec state.Sandbox) *runtime.PodSandboxNetworkStatus {
	out := &runtime.PodSandboxNetworkStatus{}
	for i, ip := range rec.Network.IPs {
		if i == 0 {
			out.Ip = ip.String()
			continue
		}
		out.AdditionalIps = append(out.AdditionalIps, &runtime.PodIP{Ip: ip.String()})
	}
	return out
}
