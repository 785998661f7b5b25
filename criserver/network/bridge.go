package network

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/host/sysctl"
)

const (
	defaultRoot   = "/var/lib/sunaba"
	defaultBridge = "sunaba0"
	maxIfName     = unix.IFNAMSIZ - 1
)

// DefaultBridgeName is the bridge of the server whose root directory is root: sunaba0 for the
// default root, else a name of its own, so that several servers run side by side.
func DefaultBridgeName(root string) string {
	if root == "" || filepath.Clean(root) == defaultRoot {
		return defaultBridge
	}
	sum := sha256.Sum256([]byte(filepath.Clean(root)))
	return "snb" + hex.EncodeToString(sum[:4])
}

func checkBridgeName(name string) error {
	if name == "" || len(name) > maxIfName || name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n%") {
		return fmt.Errorf("bridge %q: not a name of a link (1 to %d bytes, without space, slash, colon): %w", name, maxIfName, errdefs.ErrInvalidArgument)
	}
	return nil
}

// bridgeMAC is fixed per name: a bridge without a fixed address changes it as links come and go. It
// also marks the bridge as ours from the moment it exists.
func bridgeMAC(name string) net.HardwareAddr {
	sum := sha256.Sum256([]byte("sunaba bridge " + name))
	return append(net.HardwareAddr{0x5a, 0x5a}, sum[:4]...) // locally administered, unicast
}

// findBridge returns the bridge, nil without one.
//
// # Errors
//
// ErrFailedPrecondition when a link of this name is not ours.
func findBridge(h *netlink.Handle, name string) (netlink.Link, error) {
	l, err := h.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find bridge %q: %w", name, err)
	}
	if l.Type() != "bridge" || !bytes.Equal(l.Attrs().HardwareAddr, bridgeMAC(name)) {
		return nil, fmt.Errorf("use link %q as bridge: it exists and was not created by sunaba: %w", name, errdefs.ErrFailedPrecondition)
	}
	return l, nil
}

// ensureBridge makes the bridge what it should be: there, with these gateway addresses and no
// others, up. made tells that it was not there.
func ensureBridge(h *netlink.Handle, name string, gateways []netip.Prefix) (link netlink.Link, made bool, err error) {
	link, err = findBridge(h, name)
	if err != nil {
		return nil, false, err
	}
	if link == nil {
		made = true
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr = name, bridgeMAC(name)
		if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return nil, false, fmt.Errorf("make bridge %q: %w", name, err)
		}
		if link, err = h.LinkByName(name); err != nil {
			return nil, false, fmt.Errorf("find bridge %q: %w", name, err)
		}
	}
	// Loopback addresses of the node may go out here, for host ports on 127.0.0.1; the firewall
	// guards the way back. Pods' router advertisements are not for the node, and no address is
	// worth waiting for.
	settings := [][2]string{{"net/ipv4/conf/" + name + "/route_localnet", "1"}}
	if slices.ContainsFunc(gateways, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		v6 := "net/ipv6/conf/" + name
		settings = append(settings, [2]string{v6 + "/disable_ipv6", "0"}, [2]string{v6 + "/accept_ra", "0"}, [2]string{v6 + "/accept_dad", "0"})
	}
	for _, s := range settings {
		if err := setSysctl(s[0], s[1]); err != nil {
			return nil, made, err
		}
	}
	if err := ensureAddresses(h, link, gateways); err != nil {
		return nil, made, err
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := h.LinkSetUp(link); err != nil {
			return nil, made, fmt.Errorf("set bridge %q up: %w", name, err)
		}
	}
	return link, made, nil
}

func ensureAddresses(h *netlink.Handle, link netlink.Link, want []netip.Prefix) error {
	have, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list addresses of bridge: %w", err)
	}
	missing := slices.Clone(want)
	for _, a := range have {
		p := prefixOf(a.IPNet)
		if i := slices.Index(missing, p); i >= 0 {
			missing = slices.Delete(missing, i, i+1)
		} else if !p.Addr().IsLinkLocalUnicast() {
			if err := h.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return fmt.Errorf("remove address %v of bridge: %w", p, err)
			}
		}
	}
	return addAddresses(h, link, missing)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	a, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}
	}
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones)
}

// takenPrefixes is what the node's addresses and routes occupy, except by links in ours; default
// routes do not count.
func takenPrefixes(h *netlink.Handle, bridge string) ([]netip.Prefix, error) {
	own := -1
	if l, err := h.LinkByName(bridge); err == nil {
		own = l.Attrs().Index
	}
	var out []netip.Prefix
	add := func(n *net.IPNet, link int) {
		if p := prefixOf(n); p.IsValid() && p.Bits() > 0 && link != own {
			out = append(out, p.Masked())
		}
	}
	routes, err := dump(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		add(r.Dst, r.LinkIndex)
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		add(a.IPNet, a.LinkIndex)
		add(a.Peer, a.LinkIndex)
	}
	return out, nil
}

// uplinkMTU is the smallest MTU of the links that default routes use, in bytes; 1500 without one.
func uplinkMTU(h *netlink.Handle) (int, error) {
	mtu := 0
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := dump(func() ([]netlink.Route, error) {
			return h.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_DST)
		})
		if err != nil {
			return 0, fmt.Errorf("list default routes: %w", err)
		}
		for _, r := range routes {
			links := []int{r.LinkIndex}
			for _, hop := range r.MultiPath {
				links = append(links, hop.LinkIndex)
			}
			for _, i := range links {
				if l, err := h.LinkByIndex(i); i > 0 && err == nil && (mtu == 0 || l.Attrs().MTU < mtu) {
					mtu = l.Attrs().MTU
				}
			}
		}
	}
	mtu = cmp.Or(mtu, 1500)
	return mtu, nil
}

// dump repeats a listing that the kernel says is inconsistent because something changed meanwhile.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	for range 20 {
		if all, err := list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return list()
}

// setSysctl sets a kernel parameter unless it has the value.
func setSysctl(name, value string) error {
	have, err := sysctl.Read(name)
	if err == nil && have != value {
		err = sysctl.Write(name, value)
	}
	if err != nil {
		return fmt.Errorf("set %s to %s: %w", name, value, err)
	}
	return nil
}

// forwardPackets turns routing between links on. Where the node configures itself by router
// advertisements, it would stop listening to them as a router: those links are told to listen all
// the same.
func forwardPackets(v6 bool) error {
	if err := setSysctl("net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	if !v6 {
		return nil
	}
	const all = "net/ipv6/conf/all/forwarding"
	if sysctl.Is(all, "1") {
		return nil
	}
	links, err := os.ReadDir("/proc/sys/net/ipv6/conf")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list links: %w", err)
	}
	for _, link := range links {
		name := "net/ipv6/conf/" + link.Name() + "/accept_ra"
		if link.Name() == "all" || link.Name() == "default" || !sysctl.Is(name, "1") {
			continue // no link, a link that was just deleted, or one that does not listen
		}
		if err := sysctl.Write(name, "2"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("set %s to 2: %w", name, err)
		}
	}
	return setSysctl(all, "1")
}

// hasIPv6 reports whether the node's kernel speaks IPv6.
func hasIPv6() bool { return sysctl.Is("net/ipv6/conf/all/disable_ipv6", "0") }
