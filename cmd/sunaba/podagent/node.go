package podagent

import (
	"maps"
	"net"

	"github.com/sunaba-project/sunaba/criserver/sandbox"
	"github.com/sunaba-project/sunaba/criserver/spec"
	"github.com/sunaba-project/sunaba/pods/agent/node"
)

// Facts are what pods are told of the node and what they may request, with what the server and
// the configuration know of it.
func Facts(c Config, root string, host spec.Host) (node.Facts, error) {
	reserved, err := c.reserved()
	if err != nil {
		return node.Facts{}, err
	}
	resolv, err := sandbox.HostResolv(true)
	if err != nil {
		return node.Facts{}, err
	}
	f, err := node.Read(node.Options{Name: c.NodeName, Root: root, Pods: c.MaxPods, Reserved: reserved, IPs: routedIPs(), Resolv: []byte(resolv)})
	if err != nil {
		return f, err
	}
	maps.Copy(f.Labels, c.NodeLabels)
	n := &f.Node
	n.ClusterDNS, n.ClusterDomain = c.ClusterDNS, c.ClusterDomain
	n.SeccompProfiles, n.SeccompDefault = c.Seccomp, c.SeccompDefault
	if !host.Hugetlb {
		n.HugePageSizes = nil
	}
	n.CgroupV2, n.SwapAccounting = host.CgroupV2, host.SwapAccounting
	n.MaskedPaths, n.ReadonlyPaths = spec.DefaultPaths()
	return f, nil
}

// memoryLimit is how much memory all pods have together, in bytes; 0 without a limit.
func memoryLimit(c Config, f node.Facts) uint64 {
	if list, err := c.reserved(); err != nil || list.Memory().IsZero() {
		return 0
	}
	return uint64(max(f.Node.Allocatable.Memory().Value(), 0))
}

// routedIPs are the addresses from which the node reaches others, one of each family that it has.
// An interface may have others, and a bridge of pods has one too.
func routedIPs() []string {
	var ips []string
	for _, remote := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := net.Dial("udp", remote) // finds a route and sends nothing
		if err != nil {
			continue
		}
		if a, ok := conn.LocalAddr().(*net.UDPAddr); ok && a.IP.IsGlobalUnicast() {
			ips = append(ips, a.IP.String())
		}
		conn.Close()
	}
	return ips
}
