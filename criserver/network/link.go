package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sunaba-project/sunaba/criserver/network/netns"
	"github.com/sunaba-project/sunaba/host/sysctl"
)

// podInterface is the name of a pod's link inside the pod.
const podInterface = "eth0"

// hostEndPrefix and hostEndDigits make the name of a pod's link on the node: snb and the start of
// the pod's id.
const (
	hostEndPrefix = "snb"
	hostEndDigits = maxIfName - len(hostEndPrefix)
)

// hostEnd is the name of the pod's link on the node.
func hostEnd(podID string) string { return hostEndPrefix + clip(podID, hostEndDigits) }

// isHostEnd reports whether a link's name is one that hostEnd makes.
func isHostEnd(name string) bool {
	digits, ok := strings.CutPrefix(name, hostEndPrefix)
	return ok && len(digits) == hostEndDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

// podMAC follows from the pod's first address, so that neighbours' caches stay valid when another
// pod gets the address.
func podMAC(a netip.Addr) net.HardwareAddr {
	b := a.AsSlice()
	return append(net.HardwareAddr{0x5a, 0x6e}, b[len(b)-4:]...)
}

// veth is a pod's link to be made.
type veth struct {
	pod         string
	bridge, mtu int            // index of the bridge; bytes
	addrs       []netip.Prefix // of the pod, with the subnets' lengths
	gateways    []netip.Addr   // one per address
}

// connect makes the pair and configures the pod's end; it returns the addresses that the pod took.
// The peer is born in the pod's namespace and the host end in the bridge, with one message: moving
// a link costs twenty times as much. On an error nothing is left behind.
func (v veth) connect(h *netlink.Handle, ns *os.File) ([]netip.Addr, error) {
	name := hostEnd(v.pod)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.MasterIndex, attrs.Flags = name, v.mtu, v.bridge, net.FlagUp
	link := &netlink.Veth{
		LinkAttrs:        attrs,
		PeerName:         podInterface,
		PeerHardwareAddr: podMAC(v.addrs[0].Addr()),
		PeerNamespace:    netlink.NsFd(int(ns.Fd())),
		PeerTxQLen:       -1,
	}
	err := h.LinkAdd(link)
	if errors.Is(err, unix.EEXIST) { // left by an earlier try for this pod
		if err = deleteLink(h, name); err == nil {
			err = h.LinkAdd(link)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make link %q: %w", name, err)
	}
	// A pod must be able to reach itself through the node (a host port, a service).
	if err := h.LinkSetHairpin(link, true); err != nil {
		return nil, errors.Join(fmt.Errorf("set hairpin mode of link %q: %w", name, err), deleteLink(h, name))
	}
	var ips []netip.Addr
	err = netns.DoFile(ns, func() (err error) {
		ips, err = v.configureInside()
		return err
	})
	if err == nil {
		err = errors.Join(awaitUp(h, link.Attrs().Index), awaitUp(h, v.bridge)) // a bridge is up when a link of it is
	}
	if err != nil {
		return nil, errors.Join(err, deleteLink(h, name))
	}
	return ips, nil
}

// configureInside runs in the pod's namespace.
func (v veth) configureInside() ([]netip.Addr, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket in pod: %w", err)
	}
	defer h.Close()
	link, err := h.LinkByName(podInterface)
	if err != nil {
		return nil, fmt.Errorf("find link %q in pod: %w", podInterface, err)
	}
	v6, err := readyIPv6()
	if err != nil {
		return nil, err
	}
	addrs := slices.DeleteFunc(slices.Clone(v.addrs), func(a netip.Prefix) bool { return a.Addr().Is6() && !v6 })
	if err := h.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("set link %q in pod up: %w", podInterface, err)
	}
	if err := addAddresses(h, link, addrs); err != nil {
		return nil, err
	}
	if err := awaitUp(h, link.Attrs().Index); err != nil {
		return nil, err
	}
	for _, gw := range v.gateways {
		if gw.Is6() && !v6 {
			continue
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gw.AsSlice()}
		if err := h.RouteAdd(route); err != nil {
			return nil, fmt.Errorf("add default route via %v in pod: %w", gw, err)
		}
	}
	var ips []netip.Addr
	for _, a := range addrs {
		ips = append(ips, a.Addr())
	}
	return ips, nil
}

// readyIPv6 prepares the pod's link for IPv6: addresses come only from this server, and are usable
// at once. It reports whether the link takes IPv6 addresses at all; a sysctl of the pod may have
// turned that off.
func readyIPv6() (bool, error) {
	conf := "net/ipv6/conf/" + podInterface
	if !sysctl.Is(conf+"/disable_ipv6", "0") {
		return false, nil
	}
	return true, errors.Join(setSysctl(conf+"/accept_ra", "0"), setSysctl(conf+"/accept_dad", "0"))
}

// disarm takes the pod's addresses off its link, so that they can go to another pod even if
// something keeps the pod's namespace alive. The kernel deletes the link with the namespace:
// deleting it would take 19 ms.
func disarm(nsPath string, addrs []netip.Addr) error {
	err := netns.Do(nsPath, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("open netlink socket in pod: %w", err)
		}
		defer h.Close()
		link, err := h.LinkByName(podInterface)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find link %q in pod: %w", podInterface, err)
		}
		have, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(link, netlink.FAMILY_ALL) })
		if err != nil {
			return fmt.Errorf("list addresses of pod: %w", err)
		}
		for _, a := range have {
			for _, ours := range addrs {
				if prefixOf(a.IPNet).Addr() != ours {
					continue
				}
				if err := h.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
					return fmt.Errorf("remove address %v from pod: %w", ours, err)
				}
			}
		}
		return nil
	})
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// deleteLink deletes a link of the node; one that is not there is fine.
func deleteLink(h *netlink.Handle, name string) error {
	l, err := h.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = h.LinkDel(l)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete link %q: %w", name, err)
	}
	return nil
}
