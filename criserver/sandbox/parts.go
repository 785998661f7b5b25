package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
)

// Pins says which namespaces a sandbox of this configuration has of its own.
func Pins(config *runtime.PodSandboxConfig) netns.PinOptions {
	ns := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	own := ns.GetNetwork() != runtime.NamespaceMode_NODE
	o := netns.PinOptions{Net: own, UTS: own, IPC: ns.GetIpc() != runtime.NamespaceMode_NODE}
	if own {
		o.Hostname = config.GetHostname()
	}
	if ids := spec.UserNamespace(config); ids != nil {
		o.User = &netns.UserOptions{
			UIDs: netns.IDMap{Inside: ids.UID.ContainerID, Outside: ids.UID.HostID, Length: ids.UID.Size},
			GIDs: netns.IDMap{Inside: ids.GID.ContainerID, Outside: ids.GID.HostID, Length: ids.GID.Size},
		}
	}
	return o
}

// checkUserNamespace refuses one that the sandbox's containers could not have.
func checkUserNamespace(config *runtime.PodSandboxConfig, host spec.Host) error {
	if spec.UserNamespace(config) != nil && !host.IDMappedMounts {
		return fmt.Errorf("the kernel, or the file system of the images, cannot show other owners (idmapped mounts): %w", errdefs.ErrFailedPrecondition)
	}
	return nil
}

// give makes a file the property of the root in the sandbox's user namespace.
func give(path string, config *runtime.PodSandboxConfig) error {
	ids := spec.UserNamespace(config)
	if ids == nil {
		return nil
	}
	return os.Chown(path, int(ids.UID.HostID), int(ids.GID.HostID))
}

// startBoth makes the cgroup and starts the shim in it, while the namespaces are pinned and the
// network is set up: the two are independent and take most of the time. Then the shim prewarms the
// first guest, unless more sandboxes start than there are processors; CreateContainer does it then.
func (s *Sandbox) startBoth(ctx context.Context, rec state.Sandbox) error {
	if err := checkUserNamespace(rec.Config.Value, s.manager.o.Host); err != nil {
		return err
	}
	defer s.manager.starting.Add(-1)
	crowded := s.manager.starting.Add(1) > int64(goruntime.NumCPU())
	shim, pinned := make(chan error, 1), make(chan bool, 1)
	go func() {
		err := s.startShim(ctx, rec)
		if <-pinned && err == nil && !crowded {
			s.Prepare(ctx)
		}
		shim <- err
	}()
	err := s.pin(rec.Config.Value)
	pinned <- err == nil
	if err == nil {
		err = s.network.setUp(ctx, rec)
	}
	return errors.Join(<-shim, err)
}

func (s *Sandbox) startShim(ctx context.Context, rec state.Sandbox) error {
	if err := (group{s.manager, rec}).create(); err != nil {
		return err
	}
	shim, err := s.manager.shims.Acquire(ctx, rec)
	if err == nil {
		s.shim.set(shim)
	}
	return err
}

// stopBoth releases the shim and takes down the network in parallel, then unpins the namespaces and
// removes the cgroup. It continues after an error and returns all of them.
func (s *Sandbox) stopBoth(ctx context.Context, rec state.Sandbox) error {
	ended := make(chan error, 1)
	go func() { ended <- s.shim.release(ctx, rec) }()
	down := s.network.tearDown(ctx, rec)
	return errors.Join(<-ended, down, in("unpin namespaces", s.unpin(ctx)),
		in("remove cgroup", group{s.manager, rec}.remove(ctx, s.Shim())))
}

// in says of an error, if it is one, in which part it came.
func in(part string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", part, err)
}
