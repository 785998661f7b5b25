package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sunaba-project/sunaba/criserver/network/firewall"
	"github.com/sunaba-project/sunaba/criserver/network/lease"
)

// leasePorts checks the port mappings of a pod and returns those with a host port, without
// repetitions.
func leasePorts(mappings []PortMapping) ([]lease.Port, error) {
	var out []lease.Port
	for _, m := range mappings {
		if m.HostPort <= 0 {
			continue
		}
		p, err := leasePort(m)
		if err != nil {
			return nil, fmt.Errorf("host port %d: %w: %w", m.HostPort, err, errdefs.ErrInvalidArgument)
		}
		same := slices.IndexFunc(out, func(q lease.Port) bool {
			return q.Protocol == p.Protocol && q.HostIP == p.HostIP && q.HostPort == p.HostPort
		})
		switch {
		case same < 0:
			out = append(out, p)
		case out[same] != p:
			return nil, fmt.Errorf("host port %v: leads to ports %d and %d of the pod: %w", p, out[same].ContainerPort,
				p.ContainerPort, errdefs.ErrInvalidArgument)
		}
	}
	return out, nil
}

func leasePort(m PortMapping) (lease.Port, error) {
	p := lease.Port{Protocol: strings.ToLower(m.Protocol), HostPort: uint16(m.HostPort), ContainerPort: uint16(m.ContainerPort)}
	p.Protocol = cmp.Or(p.Protocol, "tcp")
	if !slices.Contains([]string{"tcp", "udp", "sctp"}, p.Protocol) {
		return p, fmt.Errorf("unknown protocol %q", m.Protocol)
	}
	if m.HostPort > 65535 || m.ContainerPort <= 0 || m.ContainerPort > 65535 {
		return p, fmt.Errorf("host port %d to container port %d: ports are 1 to 65535", m.HostPort, m.ContainerPort)
	}
	if m.HostIP == "" {
		return p, nil
	}
	ip, err := netip.ParseAddr(m.HostIP)
	if err != nil {
		return p, fmt.Errorf("host address %q: %w", m.HostIP, err)
	}
	p.HostIP = ip.Unmap().WithZone("").String()
	return p, nil
}

// hostMappings is a lease's host ports as the firewall wants them: one for each of the pod's
// addresses that the host address of the port allows.
func hostMappings(l lease.Lease) []firewall.Mapping {
	var out []firewall.Mapping
	for _, p := range l.Ports {
		out = append(out, portMappings(l, p)...)
	}
	return out
}

func portMappings(l lease.Lease, p lease.Port) []firewall.Mapping {
	var out []firewall.Mapping
	ip, err := netip.ParseAddr(p.HostIP)
	for _, a := range l.Addrs {
		m := firewall.Mapping{Protocol: p.Protocol, HostPort: p.HostPort, Target: netip.AddrPortFrom(a, p.ContainerPort),
			Comment: strings.TrimSpace(l.Pod + " " + clip(l.Label, 120))}
		switch {
		case p.HostIP == "":
		case err != nil || ip.Is4() != a.Is4():
			continue
		case !ip.IsUnspecified():
			m.HostIP = ip
		}
		out = append(out, m)
	}
	return out
}

func clip(s string, n int) string { return s[:min(len(s), n)] }
