package classes

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/client"
	"github.com/sunaba-project/sunaba/criserver/server"
)

// Pod is a ready sandbox with what the server tells of it.
type Pod struct {
	*runtime.PodSandbox
	Info server.PodInfo
}

// Pods asks for all ready sandboxes, of which there may be none: never nil. One that is removed
// meanwhile is left out.
func Pods(ctx context.Context, c client.Sandboxes) ([]Pod, error) {
	list, err := c.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{Filter: &runtime.PodSandboxFilter{
		State: &runtime.PodSandboxStateValue{State: runtime.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	pods := []Pod{}
	for _, s := range list.GetItems() {
		info, err := Info(ctx, c, s.GetId())
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		pods = append(pods, Pod{PodSandbox: s, Info: info})
	}
	return pods, nil
}

// Info asks what the server tells of one sandbox, its overhead measured now.
func Info(ctx context.Context, c client.Sandboxes, id string) (server.PodInfo, error) {
	var info server.PodInfo
	status, err := c.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return info, fmt.Errorf("ask for pod %q: %w", id, err)
	}
	if err := json.Unmarshal([]byte(status.GetInfo()["info"]), &info); err != nil {
		return info, fmt.Errorf("read what the server tells of pod %q: %w", id, err)
	}
	return info, nil
}
