package lease

import (
	"fmt"
	"net/netip"

	"github.com/containerd/errdefs"
)

// checkPorts refuses host ports that cannot be bound beside another pod's.
func (b *Book) checkPorts(l Lease) error {
	if len(l.Ports) == 0 {
		return nil
	}
	for _, other := range b.all() {
		for _, held := range other.Ports {
			for _, p := range l.Ports {
				if p.Protocol == held.Protocol && p.HostPort == held.HostPort && (p.covers(held) || held.covers(p)) {
					return fmt.Errorf("host port %v of pod %s: pod %s holds %v: %w", p, name(l), name(other), held, errdefs.ErrAlreadyExists)
				}
			}
		}
	}
	return nil
}

// covers reports whether p is open on every address that q is open on.
func (p Port) covers(q Port) bool {
	if p.HostIP == "" || p.HostIP == q.HostIP {
		return true
	}
	a, errP := netip.ParseAddr(p.HostIP)
	c, errQ := netip.ParseAddr(q.HostIP)
	return errP == nil && errQ == nil && a.IsUnspecified() && a.Is4() == c.Is4()
}

// String is "tcp 127.0.0.1:8080", "tcp [::1]:8080" or "tcp *:8080".
func (p Port) String() string {
	if p.HostIP == "" {
		return fmt.Sprintf("%s *:%d", p.Protocol, p.HostPort)
	}
	a, err := netip.ParseAddr(p.HostIP)
	if err != nil {
		return fmt.Sprintf("%s %s:%d", p.Protocol, p.HostIP, p.HostPort)
	}
	return fmt.Sprintf("%s %v", p.Protocol, netip.AddrPortFrom(a, p.HostPort))
}
