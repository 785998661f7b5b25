package run

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/pods/agent/identity"
)

// userRange reserves a range of user ids for the pod until release is called: the highest that no
// sandbox of the server, no agent of the machine and no other run has. Those are known by their
// locks; the kernel gives back that of a run however it ends.
func (r *runner) userRange(ctx context.Context) (users *identity.Ranges, release func() error, err error) {
	all, err := identity.OpenRanges(r.SubUIDs, r.SubGIDs)
	if err != nil {
		return nil, nil, err
	}
	var lock *os.File
	if err := seeSandboxes(ctx, r.client, all); err != nil {
		return nil, nil, err
	}
	users, err = all.Highest(func(first uint32) (bool, error) {
		lock, err = identity.LockRange(r.UserRanges, first, "")
		if errors.Is(err, durable.ErrLocked) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("reserve user ids for pod %q: %w", r.pod.Name, err)
	}
	return users, func() error { return durable.RemoveLock(lock) }, nil
}

// seeSandboxes shows the sandboxes of a server to the ranges, which give none of theirs away then.
func seeSandboxes(ctx context.Context, client *dial.Client, ranges *identity.Ranges) error {
	list, err := client.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list pods: %w", dial.Native(err))
	}
	for _, pod := range list.GetItems() {
		status, err := client.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: pod.GetId()})
		if err = dial.Native(err); errdefs.IsNotFound(err) {
			continue // removed meanwhile
		}
		if err != nil {
			return fmt.Errorf("look at pod \"%s/%s\": %w", pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), err)
		}
		ranges.See(status.GetStatus())
	}
	return nil
}
