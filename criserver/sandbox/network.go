package sandbox

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/sunaba-project/sunaba/criserver/network"
	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/criserver/state"
	"github.com/sunaba-project/sunaba/host/trace"
)

// podNetwork is a sandbox's part of the pod network.
type podNetwork struct {
	record *record
	net    network.Network
	pins   string // folder of the pinned namespaces
}

func (n podNetwork) setUp(ctx context.Context, rec state.Sandbox) (err error) {
	if !rec.Network.Up {
		return nil
	}
	ctx, span := trace.Start(ctx, "set up network")
	defer func() { span.End(err) }()
	res, err := n.net.Setup(ctx, n.pod(rec))
	if err != nil {
		return fmt.Errorf("set up network: %w", err)
	}
	if err := netns.SetInterfaceSysctls(n.pins, rec.Config.Value.GetLinux().GetSysctls()); err != nil {
		return err
	}
	return n.record.setNetwork(state.Network{Up: true, IPs: res.IPs, Interface: res.Interface, Raw: res.Raw})
}

func (n podNetwork) tearDown(ctx context.Context, rec state.Sandbox) (err error) {
	if !rec.Network.Up {
		return nil
	}
	ctx, span := trace.Start(ctx, "tear down network")
	defer func() { span.End(err) }()
	pod := n.pod(rec)
	if !netns.Pinned(pod.NetNS) {
		pod.NetNS = ""
	}
	down := rec.Network
	if err := n.net.Teardown(ctx, pod, network.Result{IPs: down.IPs, Raw: down.Raw, Interface: down.Interface}); err != nil {
		return fmt.Errorf("tear down network: %w", err)
	}
	down.Up = false
	return n.record.setNetwork(down)
}

// pod is the sandbox as the network knows it.
func (n podNetwork) pod(rec state.Sandbox) network.Pod {
	config := rec.Config.Value
	md := config.GetMetadata()
	p := network.Pod{
		ID: rec.ID, Name: md.GetName(), Namespace: md.GetNamespace(), UID: md.GetUid(),
		NetNS: filepath.Join(n.pins, netns.NetFile), Annotations: config.GetAnnotations(), CgroupParent: rec.CgroupParent,
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
