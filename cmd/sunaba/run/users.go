package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/cmd/sunaba/dial"
	"github.com/sunaba-project/sunaba/host/durable"
	"github.com/sunaba-project/sunaba/pods/agent/identity"
)

// allRanges is how many ranges of user ids there are at most: OpenRanges bounds it.
const allRanges = 1 << 16

// userRange reserves a range of user ids for the pod until release is called: the highest that no
// sandbox of the server and no other run has. Another run is known by its lock, which the kernel
// gives back however the run ends.
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
		lock, err = lockRange(r.UserRanges, first)
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

// lockRange locks the file of a range in a folder that other runs make and remove too.
//
// # Errors
//
// durable.ErrLocked if another run has the range.
func lockRange(folder string, first uint32) (*os.File, error) {
	path := filepath.Join(folder, strconv.FormatUint(uint64(first), 10))
	for {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("make folder of locks: %w", err)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the folder was removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("make lock: %w", err)
		}
		if err := durable.Lock(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// A file that its owner removed before it was locked here locks nothing.
		have, err := f.Stat()
		named, nameErr := os.Stat(path)
		if err == nil && nameErr == nil && os.SameFile(have, named) {
			return f, nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("lock %q: %w", path, err)
		}
	}
}
