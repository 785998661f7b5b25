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

// allRanges is how many ranges of user ids there are at most: OpenRanges bounds it.
const allRanges = 1 << 16

// userRange reserves a range of user ids for the pod until release is called: the highest that no
// sandbox of the server, no agent of the machine and no other run has. Those are known by their
// locks; the kernel gives back that of a run however it ends.
func (r *runner) userRange(ctx context.Context) (users *identity.Ranges, release func() error, err error) {
	all, err := identity.OpenRanges(r.SubUIDs, r.SubGIDs, allRanges)
	if err != nil {
		return nil, nil, err
	}
	var lock *os.File
	used, err := usedRanges(ctx, r.client)
	if err != nil {
		return nil, nil, err
	}
	users, err = all.Highest(func(first uint32) (bool, error) {
		if used[first] {
			return false, nil
		}
		lock, err = identity.LockRange(r.UserRanges, first, "")
		if errors.Is(err, durable.ErrLocked) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("reserve user ids for pod %q: %w", r.pod.Name, err)
	}
	return users, func() error { return errors.Join(removeLock(lock.Name()), lock.Close()) }, nil
}

// usedRanges are the first ids of the ranges that sandboxes of a server have.
func usedRanges(ctx context.Context, client *dial.Client) (map[uint32]bool, error) {
	list, err := client.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", dial.Native(err))
	}
	used := map[uint32]bool{}
	for _, pod := range list.GetItems() {
		status, err := client.PodSandboxStatus(ctx, &runtime.PodSandboxStatusRequest{PodSandboxId: pod.GetId()})
		if err = dial.Native(err); errdefs.IsNotFound(err) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("look at pod \"%s/%s\": %w", pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), err)
		}
		for _, ids := range status.GetStatus().GetLinux().GetNamespaces().GetOptions().GetUsernsOptions().GetUids() {
			for id := uint64(ids.GetHostId()); id < uint64(ids.GetHostId())+uint64(ids.GetLength()); id += identity.RangeLength {
				used[uint32(id/identity.RangeLength*identity.RangeLength)] = true
			}
		}
	}
	return used, nil
}
