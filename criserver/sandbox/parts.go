package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"

	"github.com/containerd/errdefs"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sunaba-project/sunaba/criserver/cgroup"
	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/criserver/state"
)

func (s *Sandbox) filesDir() string { return filepath.Join(s.manager.o.Files, s.ID) }

func (s *Sandbox) makeFolders(context.Context) error {
	for _, dir := range []string{s.filesDir(), s.Dir} {
		if err := os.Mkdir(dir, 0o711); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sandbox) removeFolders(context.Context) error {
	return errors.Join(removeTree(s.filesDir()), removeTree(s.Dir))
}

func (s *Sandbox) makeCgroup(rec state.Sandbox) error {
	if !rec.CgroupOwned {
		return nil
	}
	if err := s.manager.o.Cgroups.MakePod(rec.CgroupParent); err != nil {
		return err
	}
	if l := Limits(rec); l != (cgroup.Limits{}) {
		return s.manager.o.Cgroups.LimitPod(rec.CgroupParent, l)
	}
	return nil
}

func (s *Sandbox) removeCgroup(ctx context.Context) error {
	rec, err := s.record()
	if err != nil {
		return err
	}
	if rec.CgroupOwned {
		err := s.manager.o.Cgroups.RemovePod(rec.CgroupParent) // which waits for a shim that is about to end
		if err == nil {
			return nil
		}
		ended, err := s.manager.o.Cgroups.EndAll(ctx, rec.CgroupParent, s.manager.shims.Processes(rec, s.Shim())...)
		s.manager.o.Logger.Warn("processes outlived their sandbox; they are killed", "sandbox", s.ID, "names", ended)
		return errors.Join(err, s.manager.o.Cgroups.RemovePod(rec.CgroupParent))
	}
	drawn, err := s.manager.DrawnLeaves(rec) // a shim that was killed leaves them
	err = errors.Join(err, s.manager.o.Cgroups.RemoveLeaf(s.manager.Leaf(rec, s.ID)))
	for _, leaf := range drawn {
		err = errors.Join(err, s.manager.o.Cgroups.RemoveLeaf(leaf))
	}
	return err
}

// Pins says which namespaces a sandbox of this configuration has of its own.
func Pins(config *runtime.PodSandboxConfig) netns.PinOptions { return pins(config) }

// pins says which namespaces a sandbox has of its own.
func pins(config *runtime.PodSandboxConfig) netns.PinOptions {
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
func (s *Sandbox) checkUserNamespace(rec state.Sandbox) error {
	if spec.UserNamespace(rec.Config.Value) == nil {
		return nil
	}
	if !s.manager.o.Host.IDMappedMounts {
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

func (s *Sandbox) pin(rec state.Sandbox) error {
	o := pins(rec.Config.Value)
	o.Sysctls = rec.Config.Value.GetLinux().GetSysctls()
	return netns.PinNamespaces(s.pinDir(), o)
}

func (s *Sandbox) unpin(context.Context) error { return netns.UnpinNamespaces(s.pinDir()) }

// startBoth starts the shim while the namespaces are pinned and the network is set up: neither needs the other, and they are
// most of the way. The shim gets ready for the first container once there are namespaces, unless more sandboxes are being
// started than there are processors: that would keep the others waiting, and comes with the container.
func (s *Sandbox) startBoth(ctx context.Context) error {
	rec, err := s.record()
	if err != nil {
		return err
	}
	if err := s.checkUserNamespace(rec); err != nil {
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
	err = s.pin(rec)
	pinned <- err == nil
	if err == nil {
		err = s.setUpNetwork(ctx, rec)
	}
	return errors.Join(<-shim, err)
}

func (s *Sandbox) setUpNetwork(ctx context.Context, rec state.Sandbox) error {
	if !rec.Network.Up {
		return nil
	}
	res, err := s.manager.o.Network.Setup(ctx, s.pod(rec))
	if err != nil {
		return fmt.Errorf("set up network: %w", err)
	}
	if err := netns.SetInterfaceSysctls(s.pinDir(), rec.Config.Value.GetLinux().GetSysctls()); err != nil {
		return err
	}
	_, err = s.manager.records.Amend(s.ID, func(r state.Sandbox) (state.Sandbox, error) {
		r.Network = state.Network{Up: true, IPs: res.IPs, Interface: res.Interface, Raw: res.Raw}
		return r, nil
	})
	return err
}

// pod is the sandbox as the network knows it.
func (s *Sandbox) pod(rec state.Sandbox) network.Pod {
	config := rec.Config.Value
	md := config.GetMetadata()
	p := network.Pod{
		ID: s.ID, Name: md.GetName(), Namespace: md.GetNamespace(), UID: md.GetUid(),
		NetNS: filepath.Join(s.pinDir(), netns.NetFile), Annotations: config.GetAnnotations(), CgroupParent: rec.CgroupParent,
	}
	for _, pm := range config.GetPortMappings() {
		p.Ports = append(p.Ports, network.PortMapping{
			Protocol: pm.GetProtocol().String(), HostIP: pm.GetHostIp(), HostPort: pm.GetHostPort(), ContainerPort: pm.GetContainerPort(),
		})
	}
	if dns := config.GetDnsConfig(); dns != nil {
		p.DNS = network.DNS{Servers: dns.GetServers(), Searches: dns.GetSearches(), Options: dns.GetOptions()}
	}
	return p
}

func (s *Sandbox) stopBoth(ctx context.Context) error {
	shim := make(chan error, 1)
	go func() { shim <- s.stopShim(ctx) }()
	err := s.tearDownNetwork(ctx)
	return errors.Join(<-shim, err)
}

func (s *Sandbox) tearDownNetwork(ctx context.Context) error {
	rec, err := s.record()
	if err != nil || !rec.Network.Up {
		return err
	}
	res := network.Result{IPs: rec.Network.IPs, Raw: rec.Network.Raw, Interface: rec.Network.Interface}
	pod := s.pod(rec)
	if !netns.Pinned(pod.NetNS) {
		pod.NetNS = ""
	}
	if err := s.manager.o.Network.Teardown(ctx, pod, res); err != nil {
		return fmt.Errorf("tear down network: %w", err)
	}
	_, err = s.manager.records.Amend(s.ID, func(r state.Sandbox) (state.Sandbox, error) {
		r.Network.Up = false
		return r, nil
	})
	return err
}
